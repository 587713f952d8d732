package cri

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// hungFor is the sleep that a runtime hangs in, in seconds: no other test has it.
const hungFor = "86413"

// unhung is less than any runtime command may take by itself (30 s), and by far more
// than what does not hang takes.
const unhung = 28 * time.Second

// hangingRuntime is a node with a handler "mine", a runtime that hangs in those of
// its commands that are told to.
type hangingRuntime struct {
	*node.Node
	of, dir string
}

func startHanging(t *testing.T, of string) *hangingRuntime {
	t.Helper()
	path := node.Runsc()
	if of != "runsc" {
		path, _ = exec.LookPath(of)
	}
	if path == "" {
		t.Skipf("needs %s", of)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "mine")
	script := fmt.Sprintf(`#!/bin/sh
for a in "$@"; do
	if [ -e %[1]s/hang-$a ]; then touch %[1]s/hangs-$a; sleep %[2]s; fi
done
exec %[3]s "$@"
`, dir, hungFor, path)
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	h := &hangingRuntime{Node: node.Start(t, "[handlers.mine]\npath = \""+program+"\"\n"), of: of, dir: dir}
	h.Pull(node.Busybox)
	return h
}

// hang makes the runtime hang in a command, until letGo.
func (h *hangingRuntime) hang(command string) {
	h.T.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, "hang-"+command), nil, 0o600); err != nil {
		h.T.Fatal(err)
	}
}

func (h *hangingRuntime) letGo(command string) {
	h.T.Helper()
	for _, f := range []string{"hang-", "hangs-"} {
		if err := os.Remove(filepath.Join(h.dir, f+command)); err != nil {
			h.T.Error(err)
		}
	}
}

// hangs sends a request and returns when the runtime hangs in the command.
func (h *hangingRuntime) hangs(command string, call func(context.Context) error) <-chan error {
	h.T.Helper()
	failed := make(chan error, 1)
	go func() { failed <- call(context.Background()) }()
	node.Eventually(h.T, "the runtime hangs in "+command, func() bool {
		_, err := os.Stat(filepath.Join(h.dir, "hangs-"+command))
		return err == nil
	})
	return failed
}

// sleepers are the processes in which the runtime hangs.
func sleepers() (out []string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range lines {
		if args, _ := os.ReadFile(f); bytes.Equal(args, []byte("sleep\x00"+hungFor+"\x00")) {
			out = append(out, filepath.Dir(f))
		}
	}
	return out
}

// wantClean checks that nothing is left of the pods, which are all removed.
func (h *hangingRuntime) wantClean() {
	h.T.Helper()
	if left := sleepers(); len(left) > 0 {
		h.T.Errorf("the runtime still hangs in %v", left)
	}
	// Addresses are freed after the answer.
	node.Eventually(h.T, "nothing is left of the pods", func() bool { return len(h.OfPods()) == 0 })
	if out, err := h.CLI("fsck"); err != nil {
		h.T.Errorf("fsck: %v: %s", err, out)
	}
	if out, err := h.CLI("ops"); err != nil || strings.Contains(out, "container") {
		h.T.Errorf("in flight: %v: %s", err, out)
	}
}

func (h *hangingRuntime) start(c *node.Container) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := h.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.ID})
		return err
	}
}

// ends are the requests that end a container that hangs, or its pod. Each leaves it
// to be removed.
var ends = []struct {
	name string
	call func(context.Context, *node.Container) error
}{
	{"StopContainer", func(ctx context.Context, c *node.Container) error {
		_, err := c.Sandbox.Node.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.ID})
		return err
	}},
	{"StopContainer with grace", func(ctx context.Context, c *node.Container) error {
		_, err := c.Sandbox.Node.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.ID, Timeout: 3})
		return err
	}},
	{"RemoveContainer", func(ctx context.Context, c *node.Container) error {
		_, err := c.Sandbox.Node.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.ID})
		return err
	}},
	{"StopPodSandbox", func(ctx context.Context, c *node.Container) error {
		_, err := c.Sandbox.Node.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: c.Sandbox.ID})
		return err
	}},
	{"RemovePodSandbox", func(ctx context.Context, c *node.Container) error {
		_, err := c.Sandbox.Node.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: c.Sandbox.ID})
		return err
	}},
}

// unhang does something that must not hang.
func (h *hangingRuntime) unhang(what string, call func(context.Context) error) {
	h.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), unhung)
	defer cancel()
	begun := time.Now()
	if err := call(ctx); err != nil {
		h.T.Errorf("%s: %v", what, err)
	}
	h.T.Logf("%s took %s", what, time.Since(begun).Round(time.Millisecond))
}

// removed removes the pod of a container while its runtime may hang.
func (h *hangingRuntime) removed(c *node.Container) {
	h.T.Helper()
	for _, e := range ends[3:] {
		h.unhang(e.name, func(ctx context.Context) error { return e.call(ctx, c) })
	}
}

// underHanging runs f with a runtime that can hang in place of each.
func underHanging(t *testing.T, f func(h *hangingRuntime)) {
	t.Helper()
	for _, of := range append([]string{"runsc"}, node.Handlers...) {
		t.Run(of, func(t *testing.T) { f(startHanging(t, of)) })
	}
}

// A start that hangs in its runtime is given up by who stops or removes its
// container or its pod.
func TestRuntimeHangsInRun(t *testing.T) {
	underHanging(t, func(h *hangingRuntime) {
		for _, e := range ends {
			s := h.RunPod("mine")
			c := s.Create(node.Script("sleep 1000"))
			h.hang("run")
			failed := h.hangs("run", h.start(c))
			h.unhang(e.name, func(ctx context.Context) error { return e.call(ctx, c) })
			if err := <-failed; status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "is being ") {
				h.T.Errorf("%s: the start ended with: %v", e.name, err)
			}
			if e.name == "StopContainer" {
				if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.Reason != "StartError" {
					h.T.Errorf("after the stop: %s", st)
				}
			}
			h.letGo("run")
			h.removed(c)
			h.wantClean()
		}
		h.RunPod("mine").Start(node.Script("sleep 1000")).Sandbox.Remove()
	})
}

// A daemon that dies while a start hangs leaves the runtime's command behind. The
// next one ends it when the container is removed.
func TestRuntimeHangsInRunAndTheDaemonDies(t *testing.T) {
	underHanging(t, func(h *hangingRuntime) {
		c := h.RunPod("mine").Create(node.Script("sleep 1000"))
		h.hang("run")
		failed := h.hangs("run", h.start(c))
		h.Kill(syscall.SIGKILL)
		<-failed
		h.Start()
		c.Stop(0) // waits until the pod was looked at
		h.letGo("run")
		h.removed(c)
		h.wantClean()
	})
}

// An update that hangs is given up by who removes the container or its pod, and
// keeps nobody from stopping it.
func TestRuntimeHangsInUpdate(t *testing.T) {
	for _, of := range node.Handlers {
		t.Run(of, func(t *testing.T) {
			h := startHanging(t, of)
			for _, e := range ends {
				c := h.RunPod("mine").Start(node.Script("sleep 1000"))
				h.hang("update")
				failed := h.hangs("update", func(ctx context.Context) error {
					_, err := h.Runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
						ContainerId: c.ID, Linux: &runtimeapi.LinuxContainerResources{CpuShares: 512},
					})
					return err
				})
				h.unhang(e.name, func(ctx context.Context) error { return e.call(ctx, c) })
				h.removed(c)
				if err := <-failed; status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "is being ") {
					t.Errorf("%s: the update ended with: %v", e.name, err)
				}
				h.letGo("update")
				h.wantClean()
			}
		})
	}
}

// A command that hangs in the runtime before it begins ends with its container.
func TestRuntimeHangsInExec(t *testing.T) {
	underHanging(t, func(h *hangingRuntime) {
		for _, e := range ends {
			c := h.RunPod("mine").Start(node.Script("sleep 1000"))
			h.hang("exec")
			failed := h.hangs("exec", func(ctx context.Context) error {
				_, err := h.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: c.ID, Cmd: []string{"true"}})
				return err
			})
			h.unhang(e.name, func(ctx context.Context) error { return e.call(ctx, c) })
			select {
			case err := <-failed:
				if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "is being ") {
					h.T.Errorf("%s: the command ended with: %v", e.name, err)
				}
			case <-time.After(unhung):
				h.T.Errorf("%s: the command still hangs", e.name)
			}
			h.letGo("exec")
			h.removed(c)
			h.wantClean()
		}
	})
}

// Who gives up a command that hangs in the runtime ends it.
func TestRuntimeHangsInExecAndItsCallerLeaves(t *testing.T) {
	h := startHanging(t, node.Handlers[0])
	c := h.RunPod("mine").Start(node.Script("sleep 1000"))
	h.hang("exec")
	ctx, leave := context.WithCancel(context.Background())
	failed := h.hangs("exec", func(context.Context) error {
		_, err := h.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: c.ID, Cmd: []string{"true"}})
		return err
	})
	leave()
	<-failed
	node.Eventually(t, "the command is gone", func() bool { return len(sleepers()) == 0 })
	h.letGo("exec")
	c.Exec("true")
	c.Sandbox.Remove()
	h.wantClean()
}

// A runtime that hangs when it deletes keeps no container and no pod: what is left
// of one then is files, which are deleted without it. A container in a sandbox that
// lives only the runtime can take out of it.
func TestRuntimeHangsInDelete(t *testing.T) {
	underHanging(t, func(h *hangingRuntime) {
		c := h.RunPod("mine").Start(node.Script("sleep 1000"))
		h.hang("delete")
		h.unhang("StopContainer", func(ctx context.Context) error { return ends[0].call(ctx, c) })
		for _, e := range ends[2:] { // each may wait for the runtime for a while
			if e.name == "RemoveContainer" && h.of == "runsc" {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), node.Patience)
			if err := e.call(ctx, c); err != nil {
				h.T.Errorf("%s: %v", e.name, err)
			}
			cancel()
		}
		if left := sleepers(); len(left) > 0 {
			h.T.Errorf("the runtime still hangs in %v", left)
		}
		node.Eventually(h.T, "nothing is left of the pod", func() bool { return len(h.OfPods()) == 0 })
	})
}
