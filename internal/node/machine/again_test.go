package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/agent"
)

// TestReplacements waits longer each time, until a pod has run for a while.
func TestReplacements(t *testing.T) {
	all, now := replacements{}, time.Unix(1e9, 0)
	if stays, _, _ := all.stays("a", runs, now); !stays || len(all) != 0 {
		t.Error("a pod that runs is not left alone")
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300} {
		stays, _, next := all.stays("a", final, now)
		if !stays || next.Sub(now) != want*time.Second {
			t.Errorf("%d: %v, the next look comes after %s", i, stays, next.Sub(now))
		}
		now = next
		if stays, _, next := all.stays("a", over, now); !stays || next.Sub(now) != notFinal {
			t.Errorf("%d: it goes before it has ended for good", i)
		}
		if stays, goes, _ := all.stays("a", final, now); stays || !goes {
			t.Errorf("%d: it stays", i)
		}
		if stays, goes, _ := all.stays("a", final, now.Add(time.Hour)); stays || goes {
			t.Errorf("%d: it does not go on going", i)
		}
		if stays, _, _ := all.stays("a", runs, now); !stays {
			t.Errorf("%d: it does not come again", i)
		}
	}
	now = now.Add(forgetAgain + 1)
	if _, _, next := all.stays("a", final, now); next.Sub(now) != firstAgain {
		t.Errorf("after a long time it waits for %s", next.Sub(now))
	}
}

// TestEvicted runs another pod of a workload in the place of one that was evicted, and
// leaves alone one that is nobody's.
func TestEvicted(t *testing.T) {
	p := newPlace(t)
	p.write("own.yaml", podOf("own", "run", ""))
	p.write("web.yaml", strings.NewReplacer("StatefulSet", "Deployment", "name: db", "name: web", "  serviceName: db\n", "", "replicas: 3", "replicas: 1").Replace(set))
	p.write("db.yaml", strings.Replace(set, "replicas: 3", "replicas: 1", 1))
	p.boot()
	names := []string{"own", "web-0", "db-0"}
	for _, name := range names {
		p.await(name, func() bool { return p.phase(name) == "Running" })
		pod := p.pods()[name]
		p.machine.agent.Evict(pod.UID, 0, agent.Refusal{Reason: "Evicted", Message: "the disk is full"})
	}
	for _, name := range names[1:] {
		p.await("another "+name, func() bool {
			return p.phase(name) == "Running" && p.fake.Of(name+"/c") == "create, start, stop in 0s, create, start"
		})
	}
	p.await("the end of the other", func() bool { return p.phase("own") == "Failed" })
	if got := p.fake.Of("own/c"); got != "create, start, stop in 0s" {
		t.Error(got)
	}
	events, _, _ := p.machine.events.since(0)
	n := 0
	for _, e := range events {
		if e.InvolvedObject.Kind == "StatefulSet" && e.InvolvedObject.Name == "db" && e.Reason == "RecreatingFailedPod" && e.Type == corev1.EventTypeWarning {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d events tell of it", n)
	}
}

// TestSizeLimit evicts a pod whose volume is larger than it may be.
func TestSizeLimit(t *testing.T) {
	p := newPlace(t)
	p.write("a.yaml", strings.Replace(podOf("a", "run", "  volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}]\n"), "image: 'i:1'", "image: 'i:1', volumeMounts: [{name: v, mountPath: /v}]", 1))
	p.boot()
	p.await("the pod", func() bool { return p.phase("a") == "Running" })
	at := p.fake.Config("a/c")[0].Mounts[0].HostPath
	if err := os.WriteFile(filepath.Join(at, "large"), make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	p.await("its end", func() bool {
		s := p.pods()["a"].Status
		return s.Phase == corev1.PodFailed && s.Reason == "Evicted" && strings.Contains(s.Message, `volume "v" exceeds the limit "1Mi"`)
	})
}
