package cri

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// ownHandler starts a node with a handler "mine" whose program is a link to
// that of another one, and a pod under it.
func ownHandler(t *testing.T, of string) (n *node.Node, program string, c *node.Container) {
	t.Helper()
	path, err := exec.LookPath(of)
	if err != nil {
		t.Skipf("needs %s: %v", of, err)
	}
	program = filepath.Join(t.TempDir(), "mine")
	if err := os.Symlink(path, program); err != nil {
		t.Fatal(err)
	}
	n = node.Start(t, "[handlers.mine]\npath = \""+program+"\"\n")
	n.Pull(node.Busybox)
	return n, program, n.RunPod("mine").Start(node.Script("sleep 1000"))
}

// A runtime that was taken off the host must not keep its pods from going, nor
// anything of them from being cleaned up.
func TestProgramOfAHandlerIsGone(t *testing.T) {
	for _, h := range node.Handlers {
		t.Run(h, func(t *testing.T) {
			n, program, c := ownHandler(t, h)
			if err := os.Remove(program); err != nil {
				t.Fatal(err)
			}
			c.Stop(0)
			if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.ExitCode != 137 {
				t.Errorf("after the stop: %s, exit code %d", st.State, st.ExitCode)
			}
			c.Sandbox.Remove()
			if left, _ := os.ReadDir(filepath.Join(n.State, "runtimes", "mine")); len(left) > 0 {
				t.Errorf("the runtime still keeps %v", left)
			}
		})
	}
}

// A handler that was taken out of the configuration cannot stop its pods. It
// must say so: whoever hears "not found" believes that they are gone.
func TestHandlerIsNotConfiguredAnyMore(t *testing.T) {
	n, _, c := ownHandler(t, node.Handlers[0])
	with, err := os.ReadFile(n.Config)
	if err != nil {
		t.Fatal(err)
	}
	configure := func(toml string) {
		n.Kill(syscall.SIGKILL)
		if err := os.WriteFile(n.Config, []byte(toml), 0o600); err != nil {
			t.Fatal(err)
		}
		n.Start()
	}
	configure(strings.Replace(string(with), "[handlers.mine]", "[handlers.other]", 1))
	// Its trial is over: only a daemon that knows the handler could end it.
	node.Eventually(t, "the other handler works", func() bool {
		st, err := n.Runtime.Status(n.Ctx(), &runtimeapi.StatusRequest{})
		return err == nil && slices.ContainsFunc(st.RuntimeHandlers, func(h *runtimeapi.RuntimeHandler) bool { return h.Name == "other" })
	})
	for what, call := range map[string]func() error{
		"StopContainer": func() error {
			_, err := n.Runtime.StopContainer(n.Ctx(), &runtimeapi.StopContainerRequest{ContainerId: c.ID})
			return err
		},
		"RemoveContainer": func() error {
			_, err := n.Runtime.RemoveContainer(n.Ctx(), &runtimeapi.RemoveContainerRequest{ContainerId: c.ID})
			return err
		},
		"StopPodSandbox": func() error {
			_, err := n.Runtime.StopPodSandbox(n.Ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: c.Sandbox.ID})
			return err
		},
		"RemovePodSandbox": func() error {
			_, err := n.Runtime.RemovePodSandbox(n.Ctx(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: c.Sandbox.ID})
			return err
		},
	} {
		if err := call(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), `"mine"`) {
			t.Errorf("%s: %v, want a failed precondition that names the handler", what, err)
		}
	}
	if c.Status().State == runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Error("the container is said to have ended")
	}
	configure(string(with))
	c.Sandbox.Remove()
}

// A node's administrator may want no version of a runtime that has a known flaw:
// an older one starts nothing, and what runs on it already goes on and can be ended.
func TestVersionOfAHandlerIsTooOld(t *testing.T) {
	n, _, c := ownHandler(t, node.Handlers[0])
	with, err := os.ReadFile(n.Config)
	if err != nil {
		t.Fatal(err)
	}
	n.Kill(syscall.SIGKILL)
	strict := strings.Replace(string(with), "[handlers.mine]", "[handlers.mine]\nmin_version = \"99.0\"", 1)
	if err := os.WriteFile(n.Config, []byte(strict), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Start()
	_, err = n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: n.PodConfig(), RuntimeHandler: "mine"})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "handlers.mine.min_version wants 99.0") {
		t.Errorf("a new pod: %v", err)
	}
	if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container that ran: %s", st.State)
	}
	c.Stop(0)
	c.Sandbox.Remove()
}
