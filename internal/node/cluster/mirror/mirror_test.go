package mirror

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/cluster"
	"fairlead.run/test/apiserver"
)

var podKind = apiserver.Resource{Path: "api/v1/pods", Kind: "Pod", Namespaced: true}

type rig struct {
	*apiserver.Server
	m *Mirrors
	t *testing.T

	warned []string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	server := apiserver.InMemory(t, podKind)
	client, err := cluster.NewClient(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Server: server, t: t}
	r.m = New(client, "n", func() types.UID { return "uid-n" }, func(err error) { r.warned = append(r.warned, err.Error()) })
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	running.Go(func() { _ = r.m.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r
}

// mirror is the pod of that name in the API server, and has it observed.
func (r *rig) mirror() *corev1.Pod {
	r.t.Helper()
	synctest.Wait()
	had := r.Get(podKind, "default/web-n")
	if had == nil {
		r.m.Observe(nil)
		return nil
	}
	text, err := json.Marshal(had)
	if err != nil {
		r.t.Fatal(err)
	}
	out := &corev1.Pod{}
	if err := json.Unmarshal(text, out); err != nil {
		r.t.Fatal(err)
	}
	r.m.Observe([]*corev1.Pod{out})
	return out
}

func (r *rig) writes() int {
	return r.Count(func(c apiserver.Call) bool { return c.Verb == "create" || c.Verb == "delete" })
}

func static(hash string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-n", UID: types.UID(hash), Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{AnnotationHash: hash, AnnotationSource: "file"},
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func TestMirrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		left := static("left")
		left.Annotations[annotationMirror], left.Spec.NodeName = "left", "n"
		r.Put(podKind, left)
		if r.mirror() == nil {
			t.Fatal("a mirror went before the static pods were known")
		}
		r.m.Set([]*corev1.Pod{static("one")})
		got := r.mirror()
		if got == nil || got.Annotations[annotationMirror] != "one" || got.Annotations[AnnotationSource] != "file" || got.Spec.NodeName != "n" || got.Labels["app"] != "web" || got.Status.Phase != "" {
			t.Fatalf("the mirror is %+v", got)
		}
		if o := got.OwnerReferences; len(o) != 1 || o[0].UID != "uid-n" || !*o[0].Controller {
			t.Errorf("its owners are %+v", o)
		}
		if of := r.m.Of(static("one")); of == nil || of.UID != got.UID {
			t.Errorf("the mirror of the static pod is %v", of)
		}
		before := r.writes()
		r.m.Set([]*corev1.Pod{static("one")})
		if r.mirror(); r.writes() != before {
			t.Error("a mirror that is right is written")
		}
		// Its source changes.
		r.m.Set([]*corev1.Pod{static("two")})
		if got := r.mirror(); got == nil || got.Annotations[annotationMirror] != "two" {
			t.Fatalf("the mirror of the new content is %+v", got)
		}
		// Somebody deletes it, gracefully and at once.
		now := metav1.Now()
		dying := r.mirror().DeepCopy()
		dying.DeletionTimestamp = &now
		r.Put(podKind, dying)
		r.mirror()
		if got := r.mirror(); got == nil || got.DeletionTimestamp != nil || got.UID == dying.UID {
			t.Errorf("a mirror that was deleted is %+v", got)
		}
		r.Delete(podKind, "default/web-n")
		r.mirror()
		if r.mirror() == nil {
			t.Error("a mirror that was deleted is not made again")
		}
		r.m.Set(nil, "http", "file")
		if r.mirror() == nil {
			t.Error("a mirror went whose source may be there")
		}
		r.m.Set(nil, "http")
		if got := r.mirror(); got != nil {
			t.Errorf("the mirror stays without its source: %+v", got)
		}
	})
}

func TestAPodOfThatName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		other := static("x")
		other.Annotations = nil
		r.Put(podKind, other)
		r.m.Observe(nil)
		r.m.Set([]*corev1.Pod{static("one")})
		time.Sleep(10 * time.Minute)
		if n := r.writes(); n < 5 || n > 30 {
			t.Errorf("there were %d tries in 10 minutes", n)
		}
		synctest.Wait()
		if len(r.warned) != 1 || !strings.Contains(r.warned[0], "default/web-n") {
			t.Errorf("told %q, want it once", r.warned)
		}
		r.Delete(podKind, "default/web-n")
		time.Sleep(2 * time.Minute)
		if got := r.mirror(); got == nil || !Is(got) {
			t.Errorf("there is %v", got)
		}
	})
}

// The answer to a creation is lost.
func TestAMirrorThatTheWatchDoesNotShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		made := static("one")
		made.Annotations[annotationMirror], made.Spec.NodeName = "one", "n"
		r.Put(podKind, made)
		r.m.Observe(nil)
		r.m.Set([]*corev1.Pod{static("one")})
		synctest.Wait()
		if r.m.Of(static("one")) == nil || r.writes() != 1 {
			t.Errorf("the mirror is not found with %d writes", r.writes())
		}
	})
}
