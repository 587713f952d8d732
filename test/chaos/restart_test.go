package chaos

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// manyPods is how many pods run when the daemon is killed.
const manyPods = 200

// crowd runs many pods with one container each.
func crowd(n *node.Node, handler string, count int) []*node.Container {
	n.T.Helper()
	out := make([]*node.Container, count)
	turns := make(chan bool, 4)
	var wg sync.WaitGroup
	for i := range out {
		wg.Go(func() {
			turns <- true
			defer func() { <-turns }()
			_, out[i] = inhabited(n, handler)
		})
	}
	wg.Wait()
	return out
}

// The daemon is killed while many pods run. The next one serves before it has
// looked at them, and one that cannot be looked at delays no other. How long it
// took is printed, and decides nothing.
func TestManyPodsAndOneThatHangs(t *testing.T) {
	t.Parallel()
	n := node.Start(t, "", node.Plain)
	n.Pull(node.Busybox)
	ctrs := crowd(n, "crun", manyPods)
	if t.Failed() {
		return
	}
	n.Kill(syscall.SIGKILL)
	begin := time.Now()
	n.Start()
	served := time.Since(begin)
	allObserved(n)
	t.Logf("%d pods: the socket answered after %s, all pods were observed after %s", manyPods, served, time.Since(begin))
	wantAllRunning(n, ctrs)

	stuck := ctrs[0].Sandbox
	n.Kill(syscall.SIGKILL)
	dead := mountDead(t, filepath.Join(n.State, "pods", stuck.ID, "ns"))
	dead.hang(deaf)
	n.Start()
	node.Eventually(t, "the stuck pod alone is not observed", func() bool {
		return slices.Equal(recovering(n), []string{stuck.ID})
	})
	wantAllRunning(n, ctrs)
	if got := ctrs[1].Exec("echo", "here"); strings.TrimSpace(got) != "here" {
		t.Errorf("exec in another pod: %q", got)
	}
	n.RunPod("crun").Remove()
	ctrs[2].Sandbox.Remove()
	if got := recovering(n); !slices.Equal(got, []string{stuck.ID}) {
		t.Errorf("all that was while %v were recovered, not while the stuck pod was", got)
	}
	ops, err := n.CLI("ops", "-o", "json")
	if err != nil || !strings.Contains(ops, stuck.ID) {
		t.Errorf("fairlead ops does not name the stuck pod: %v\n%s", err, ops)
	}
	dead.free()
	allObserved(n)
	stuck.Remove()
	removeCrowd(n, ctrs[1:])
}

func wantAllRunning(n *node.Node, ctrs []*node.Container) {
	n.T.Helper()
	running := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	r, err := n.Runtime.ListContainers(n.Ctx(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{State: running}})
	if err != nil {
		n.T.Fatal(err)
	}
	if len(r.Containers) != len(ctrs) {
		n.T.Errorf("%d of %d containers run", len(r.Containers), len(ctrs))
	}
}

// removeCrowd removes pods four at a time; those that are gone do not matter.
func removeCrowd(n *node.Node, ctrs []*node.Container) {
	turns := make(chan bool, 4)
	var wg sync.WaitGroup
	for _, c := range ctrs {
		wg.Go(func() {
			turns <- true
			defer func() { <-turns }()
			c.Sandbox.Remove()
		})
	}
	wg.Wait()
}

// atOnce is how many containers end in the same second.
const atOnce = 200

// Many containers end at once, while the daemon runs and while none does. Each
// end is told as it was; who did not end goes on.
func TestManyEndAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		dead bool
	}{{"with a daemon", false}, {"without a daemon", true}} {
		t.Run(c.name, func(t *testing.T) { manyEndAtOnce(t, c.dead) })
	}
}

func manyEndAtOnce(t *testing.T, dead bool) {
	n := node.Start(t, "", node.Plain)
	n.Pull(node.Busybox)
	ctrs := crowd(n, "crun", atOnce+5)
	if t.Failed() {
		return
	}
	pids := make([]int, len(ctrs))
	for i, c := range ctrs {
		pids[i] = pidOf(c)
	}
	if dead {
		n.Kill(syscall.SIGKILL)
	}
	before := time.Now()
	for _, pid := range pids[:atOnce] {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if dead {
		n.Start()
		allObserved(n)
	}
	for i, c := range ctrs {
		if i >= atOnce {
			if got := c.Status(); got.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
				t.Errorf("container %d is %s", i, got.State)
			}
			continue
		}
		got := c.Wait()
		if at := time.Unix(0, got.FinishedAt); got.ExitCode != 137 || got.Reason != "Error" || at.Before(before) || at.After(time.Now()) {
			t.Errorf("container %d: code %d, %s: %s, ended at %s, not after %s", i, got.ExitCode, got.Reason, got.Message, at, before)
		}
	}
	removeCrowd(n, ctrs)
}
