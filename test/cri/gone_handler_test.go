package cri

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
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

// A handler that is taken out of the configuration, while a daemon runs or while
// none does, takes no new pods, serves those that it has, and is gone with the last.
func TestHandlerIsNotConfiguredAnyMore(t *testing.T) {
	for name, restart := range map[string]bool{"while it runs": false, "between two daemons": true} {
		t.Run(name, func(t *testing.T) {
			n, _, c := ownHandler(t, node.Handlers[0])
			with, err := os.ReadFile(n.Config)
			if err != nil {
				t.Fatal(err)
			}
			without := strings.Replace(string(with), "[handlers.mine]", "[handlers.other]", 1)
			if restart {
				n.Kill(syscall.SIGKILL)
			}
			if err := os.WriteFile(n.Config, []byte(without), 0o600); err != nil {
				t.Fatal(err)
			}
			if restart {
				n.Start()
			}
			node.Eventually(t, "the other handler works, and the first drains", func() bool {
				states := handlerStates(n)
				return states["other"] == "Ready" && states["mine"] == "Draining"
			})
			_, err = n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: n.PodConfig(), RuntimeHandler: "mine"})
			if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "takes no new pods") || !strings.Contains(err.Error(), "other") {
				t.Errorf("a new pod: %v", err)
			}
			if out := c.Exec("echo", "alive"); out != "alive\n" {
				t.Errorf("exec: %q", out)
			}
			c.Stop(0)
			c.Sandbox.Remove()
			node.Eventually(t, "the handler is gone", func() bool { return handlerStates(n)["mine"] == "" })
			if left, _ := os.ReadDir(filepath.Join(n.Root, "handlers", "mine")); len(left) > 0 {
				t.Errorf("revisions of the handler are left: %v", left)
			}
		})
	}
}

// handlerStates are the states of all handlers by name.
func handlerStates(n *node.Node) map[string]string {
	var list []struct {
		Name    string
		Details struct{ State string }
	}
	out, err := n.CLI("handlers", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &list)
	}
	if err != nil {
		n.T.Fatal(err)
	}
	states := map[string]string{}
	for _, h := range list {
		states[h.Name] = h.Details.State
	}
	return states
}

// Handlers are added, changed and removed while pods run, by command, by a file
// and by SIGHUP, and what does not work changes nothing.
func TestHandlersChangeWithoutARestart(t *testing.T) {
	path, err := exec.LookPath(node.Handlers[0])
	if err != nil {
		t.Skipf("needs %s: %v", node.Handlers[0], err)
	}
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	command := func(want string, args ...string) {
		t.Helper()
		out, err := n.CLI(append([]string{"handlers"}, args...)...)
		if err != nil {
			out = err.Error()
		}
		mustSay(t, out, want)
	}
	before := n.RunPod(node.Handlers[0]).Start(node.Script("sleep 1000"))
	command("handler extra is added; a container starts in ", "add", "extra", "path="+path)
	command("handler extra is added", "add", "extra", "path="+path) // once more, as if the answer was lost
	command("added before, and differently", "add", "extra", "path=/other")
	command("there is no program /not/there", "set", "extra", "path=/not/there")
	command("did you mean", "set", "extra", "pth="+path)
	command("no handler of that name was added; those that were: extra", "rm", "extr")
	command("found on PATH", "rm", node.Handlers[0])
	c := n.RunPod("extra").Start(node.Script("sleep 1000"))
	n.Kill(syscall.SIGKILL)
	n.Start()
	command("handler extra is changed", "set", "extra", "privileged_without_host_devices=true")
	command("1 pods still run on it", "rm", "extra")
	c.Sandbox.Remove()
	node.Eventually(t, "it is gone", func() bool { return handlerStates(n)["extra"] == "" })

	with, err := os.ReadFile(n.Config)
	if err != nil {
		t.Fatal(err)
	}
	write := func(toml string) {
		t.Helper()
		if err := os.WriteFile(n.Config, append([]byte(toml), with...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("[handlers.filed]\npath = \"" + path + "\"\n")
	node.Eventually(t, "the file is taken up", func() bool { return handlerStates(n)["filed"] == "Ready" })
	write("[handlers.filed]\n[handlers.good]\npath = \"" + path + "\"\n")
	node.Eventually(t, "the file is refused", func() bool {
		return strings.Contains(n.DaemonLog(), "runtime handler filed does not work, and nothing was changed")
	})
	if states := handlerStates(n); states["filed"] != "Ready" || states["good"] != "" {
		t.Errorf("%v", states)
	}
	refused := strings.Count(n.DaemonLog(), "what was in force stays")
	if err := syscall.Kill(n.Pid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	node.Eventually(t, "SIGHUP has it read again", func() bool { return strings.Count(n.DaemonLog(), "what was in force stays") > refused })
	write("")
	node.Eventually(t, "all is as it was", func() bool { return handlerStates(n)["filed"] == "" && handlerStates(n)[node.Handlers[0]] == "Ready" })
	if out := before.Exec("echo", "alive"); out != "alive\n" {
		t.Errorf("the first pod: %q", out)
	}
}

// A pod keeps the program that it was started with when another is installed.
func TestProgramOfAHandlerIsSwapped(t *testing.T) {
	n, program, c := ownHandler(t, node.Handlers[0])
	if err := os.WriteFile(program+".new", []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(program+".new", program); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: n.PodConfig(), RuntimeHandler: "mine"}); err == nil {
		t.Error("a pod was started on a program that does nothing")
	}
	for range 2 {
		if out := c.Exec("echo", "alive"); out != "alive\n" {
			t.Errorf("exec: %q", out)
		}
		second := c.Sandbox.Start(node.Script("echo second"))
		second.Wait()
		must(t, second.Log(), "second")
		second.Remove()
		n.Kill(syscall.SIGKILL)
		n.Start()
	}
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
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "handlers.mine.min_version wants 99.0") {
		t.Errorf("a new pod: %v", err)
	}
	if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container that ran: %s", st.State)
	}
	c.Stop(0)
	c.Sandbox.Remove()
}
