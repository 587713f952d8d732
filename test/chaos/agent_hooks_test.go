package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The runtime is killed while hooks run: their containers go on, the postStart hook runs again
// when the runtime is back, and a pod that ends does so by its preStop hook.
func TestHooksOutliveTheRuntime(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "")
	// A hook writes down that it has begun, and is over when somebody says so.
	hook := func(name string) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "echo begun >>/switch/" + name + "; while [ ! -e /switch/go ]; do sleep 0.1; done; echo over >>/switch/" + name}}}
	}
	names := []string{"begins", "ends"}
	said := func(pod, hook string) string {
		text, err := os.ReadFile(filepath.Join(c.Dir, "switch", pod, hook))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(text)
	}
	let := func(pod string) {
		if err := os.WriteFile(filepath.Join(c.Dir, "switch", pod, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range names {
		of := c.switched(name)
		c.put(name, of, func(p *corev1.Pod) {
			p.Spec.TerminationGracePeriodSeconds = new(int64(600))
			if i == 0 {
				p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: hook("post")}
			} else {
				p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: hook("pre")}
			}
		})
	}
	c.eventually("the postStart hook runs", func() bool { return said("begins", "post") == "begun\n" && c.ready("ends") })
	c.remove("ends")
	c.eventually("the preStop hook runs", func() bool { return said("ends", "pre") == "begun\n" })
	before := c.all()["begins"].Status.ContainerStatuses[0].ContainerID
	c.Kill(syscall.SIGKILL)
	c.Start()
	c.eventually("both hooks run again", func() bool {
		return strings.HasPrefix(said("begins", "post"), "begun\nbegun\n") && strings.HasPrefix(said("ends", "pre"), "begun\nbegun\n")
	})
	for _, name := range names {
		let(name)
	}
	c.eventually("the pod whose postStart hook ran is Ready", func() bool { return c.ready("begins") })
	if got := c.all()["begins"].Status.ContainerStatuses[0]; got.RestartCount != 0 || got.ContainerID != before {
		t.Errorf("its container is another one: %+v", got)
	}
	c.eventually("the pod that was to end is gone", func() bool { return c.all()["ends"] == nil })
	if !strings.HasSuffix(said("ends", "pre"), "over\n") {
		t.Errorf("its preStop hook has said %q", said("ends", "pre"))
	}
}
