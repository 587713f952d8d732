package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// tree is cgroups in memory. It outlives the agents that use it.
type tree struct {
	mu     sync.Mutex
	has    map[types.UID]*corev1.Pod
	writes int
	fail   error
	stuck  error  // of what is removed
	look   func() // while a cgroup is made; nil for nothing
}

func (t *tree) Parent(p *corev1.Pod) string { return "/pods/" + string(p.UID) }

func (t *tree) Ensure(_ context.Context, p *corev1.Pod) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.look != nil {
		t.look()
	}
	if t.fail == nil {
		t.has[p.UID] = p
		t.writes++
	}
	return t.fail
}

func (t *tree) Remove(_ context.Context, uid types.UID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stuck == nil {
		delete(t.has, uid)
	}
	return t.stuck
}

func (t *tree) uids() []types.UID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.has))
}

// TestCgroups has one for each pod as long as it runs, with what its class adds, through
// the end of any agent.
func TestCgroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		overhead := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("7Mi")}
		n.place = func(context.Context, *corev1.Pod) (Placement, error) { return Placement{Overhead: overhead}, nil }
		a, b, c := pod(1, corev1.RestartPolicyAlways, "x"), pod(2, corev1.RestartPolicyNever, "job"), pod(3, corev1.RestartPolicyAlways, "z")
		n.boot(t, a, b, c)
		if got := n.tree.uids(); !slices.Equal(got, []types.UID{a.UID, b.UID, c.UID}) {
			t.Errorf("%q", got)
		}
		if got := n.tree.has[a.UID].Spec.Overhead; got.Memory().String() != "7Mi" || a.Spec.Overhead != nil {
			t.Errorf("counted with %v, and the pod that was given has %v", got, a.Spec.Overhead)
		}
		if got := n.CgroupParent("p3"); got != "/pods/"+string(c.UID) {
			t.Errorf("a sandbox is in %q", got)
		}
		writes := n.tree.writes
		n.Exit("p1/x", 1)
		n.Exit("p2/job", 0)
		synctest.Wait()
		if got := n.tree.uids(); !slices.Equal(got, []types.UID{a.UID, c.UID}) || n.tree.writes != writes {
			t.Errorf("after the end of p2 %q, and %d more writes", got, n.tree.writes-writes)
		}
		n.kill()
		// The runtime has lost p3, and nobody wants it any more. Another's stays.
		n.Reboot()
		n.tree.has[uid(99)] = pod(99, "")
		n.boot(t, a, b)
		if got := n.tree.uids(); !slices.Equal(got, []types.UID{a.UID, uid(99)}) || !slices.Equal(n.gone, []string{"p3"}) {
			t.Errorf("%q, gone %q", got, n.gone)
		}
		n.Set(nil)
		synctest.Wait()
		if got := n.tree.uids(); !slices.Equal(got, []types.UID{uid(99)}) {
			t.Errorf("at the end %q", got)
		}
		n.stop()
	})
}

// TestNoCgroup runs nothing without limits.
func TestNoCgroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.tree.fail = errors.New("no space left")
		n.boot(t, pod(1, corev1.RestartPolicyAlways, "x"))
		if !n.saw("p1 FailedCreatePodContainer: The cgroup of the pod cannot be made, so that it is not started, which is tried again; see whether the node's cgroups are mounted for writing, and are those of --cgroup-driver and --cgroup-root: no space left") || len(n.Calls("run")) > 0 {
			t.Errorf("%q %q", n.events, n.Calls(""))
		}
		n.stop()
	})
}
