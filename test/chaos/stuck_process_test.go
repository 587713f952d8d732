package chaos

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	rpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// A container's process is stuck in the kernel, where not even SIGKILL ends it.
// Who wants it to end is told so, and when it can end it does. Everybody else goes
// on, its neighbour in the pod too.
func TestProcessOnADeadMount(t *testing.T) {
	t.Parallel()
	node.UnderEach(t, func(t *testing.T, n *node.Node, handler string) {
		dead := mountDead(t, filepath.Join(t.TempDir(), "dead"))
		s := n.RunPod(handler)
		cfg := untilGo("cd /mnt; exec ls below")
		cfg.Mounts = onHostPath(dead.dir).Mounts
		stuck, neighbour := s.Start(cfg), s.Start(node.Script("sleep 1000"))
		other := n.RunPod(handler).Start(onHostPath(dead.dir))
		pid := pidOf(stuck)
		dead.hang(deaf)
		letGo(stuck)
		node.Eventually(t, "the process waits", func() bool { return dead.asked.Load() > 0 })
		wantStuck(t, stopNow(n, stuck))
		if !lives(pid) {
			t.Fatal("it was not stuck")
		}
		othersWork(n, handler)
		if got := strings.TrimSpace(neighbour.Exec("echo", "here")); got != "here" {
			t.Errorf("exec in its neighbour: %q", got)
		}
		wantGivenUp(t, other)
		_, err := n.Runtime.StopPodSandbox(n.Ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.ID})
		wantStuck(t, err)
		_, err = n.Runtime.RemoveContainer(n.Ctx(), &runtimeapi.RemoveContainerRequest{ContainerId: stuck.ID})
		wantStuck(t, err)
		if st := stuck.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("the container that cannot end is %s: %s", st.State, st.Message)
		}

		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			n.Kill(sig)
			n.Start()
			allObserved(n)
			if st := stuck.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
				t.Errorf("for the next daemon it is %s: %s", st.State, st.Message)
			}
			wantStuck(t, stopNow(n, stuck))
		}
		wantGivenUp(t, other)
		dead.free()
		if st := stuck.Wait(); st.ExitCode != 128+int32(syscall.SIGKILL) {
			t.Errorf("once it could end: code %d, %s", st.ExitCode, st.Reason)
		}
		s.Remove()
		node.Eventually(t, "the monitor has forgotten all but one process", func() bool {
			return measure(n)["processes on record"] == 1
		})
		other.Exec("true")
		other.Sandbox.Remove()
		wantInOrder(t, n)
	})
}

func stopNow(n *node.Node, c *node.Container) error {
	_, err := n.Runtime.StopContainer(n.Ctx(), &runtimeapi.StopContainerRequest{ContainerId: c.ID})
	return err
}

// wantStuck wants to be told that a process does not end, and why.
func wantStuck(t *testing.T, err error) {
	t.Helper()
	if status.Code(err) != rpccodes.DeadlineExceeded || !strings.Contains(err.Error(), "stuck in the kernel") {
		t.Errorf("got %v, want to be told that a process is stuck", err)
	}
}

// wantGivenUp executes a command that gets stuck, and wants the answer in spite of
// that once its time is over.
func wantGivenUp(t *testing.T, c *node.Container) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), node.Patience)
	defer cancel()
	_, err := c.Sandbox.Node.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: c.ID, Cmd: []string{"ls", "/mnt/below"}, Timeout: 1})
	if status.Code(err) != rpccodes.DeadlineExceeded || ctx.Err() != nil {
		t.Errorf("a command that is stuck: %v", err)
	}
}
