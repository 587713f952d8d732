package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/failpoint"
	"fairlead.run/test/node"
)

// The program that starts, executes and deletes by shims is killed, and fails, at
// every place that it has. The request that was cut off is accepted when it comes
// again, nothing is left, and pods beside it notice nothing.
func TestShimAtEveryPlace(t *testing.T) {
	program := runcShim(t)
	for _, action := range []string{"kill", "error"} {
		t.Run(action, func(t *testing.T) {
			a := &shimmed{t: t, dir: t.TempDir()}
			places := node.ShimPlaces(t)
			var spec []string
			for _, place := range places {
				a.spare(place)
				spec = append(spec, place+"="+action+"!"+a.file(place))
			}
			config := fmt.Sprintf("[handlers.runc]\n[handlers.shim]\ntype = \"shim\"\nruntime_type = \"io.containerd.runc.v2\"\npath = %q\n", program)
			a.Node = node.Start(t, config, node.Plain, node.WithEnv(failpoint.ShimEnv+"="+strings.Join(spec, ",")))
			a.Pull(node.Busybox)
			beside := []*node.Container{a.RunPod("shim").Start(node.Script(trapped)), a.RunPod("runc").Start(node.Script(trapped))}
			a.before = a.OfPods()
			for _, place := range places {
				t.Run(strings.TrimPrefix(place, "shim."), func(t *testing.T) {
					a.t = t
					a.tell(place)
					for _, c := range beside {
						if out := c.Exec("echo", "fine"); out != "fine\n" {
							t.Errorf("a container of another pod says %q", out)
						}
					}
				})
			}
			a.RemoveAll()
		})
	}
}

const trapped = "trap 'exit 3' TERM; echo ready; while :; do sleep 0.1; done"

// runcShim finds the shim that make test builds.
func runcShim(t *testing.T) string {
	t.Helper()
	const name = "containerd-shim-runc-v2"
	if dir := os.Getenv("FAIRLEAD_TEST_SHIMS"); dir != "" {
		return filepath.Join(dir, name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not on PATH, and FAIRLEAD_TEST_SHIMS names no folder with it; make test builds it", name)
	}
	return path
}

// shimmed is a node on which what runs shims acts at one place, once, when it is
// told to.
type shimmed struct {
	*node.Node
	t      *testing.T
	dir    string   // has a file for each place at which nothing happens
	before []string // what the pods beside the stories have
}

func (a *shimmed) file(place string) string { return filepath.Join(a.dir, place) }

func (a *shimmed) spare(place string) {
	if err := os.WriteFile(a.file(place), nil, 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// tell does with one pod what callers do, while the place acts once.
func (a *shimmed) tell(place string) {
	if err := os.Remove(a.file(place)); err != nil {
		a.t.Fatal(err)
	}
	s := &node.Sandbox{Node: a.Node, Config: a.PodConfig()}
	c := &node.Container{Sandbox: s, Config: node.Script(trapped)}
	failed := 0
	for _, step := range []request{
		{name: "run the pod", do: func() error { return a.run(s) }},
		{name: "start a container", do: func() error { return a.start(c) }},
		{name: "exec", do: func() error { return a.exec(c) }},
		{name: "stop the container", do: func() error { return a.stop(c) }},
		{name: "remove the container", do: func() error {
			_, err := a.Runtime.RemoveContainer(a.Ctx(), &runtimeapi.RemoveContainerRequest{ContainerId: c.ID})
			return err
		}},
		{name: "stop the pod", do: func() error {
			_, err := a.Runtime.StopPodSandbox(a.Ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.ID})
			return err
		}},
		{name: "remove the pod", do: func() error {
			_, err := a.Runtime.RemovePodSandbox(a.Ctx(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.ID})
			return err
		}},
	} {
		err := step.do()
		if err != nil {
			failed++
			a.t.Logf("%s: %v", step.name, err)
			err = step.do()
		}
		if err != nil {
			a.t.Errorf("%s, once more: %v", step.name, err)
		}
	}
	if _, err := os.Stat(a.file(place)); err != nil {
		a.t.Error("nobody came by")
		a.spare(place)
	}
	if failed > 1 {
		a.t.Errorf("%d requests failed over one place", failed)
	}
	if left := settled(func() []string { return minus(a.OfPods(), a.before) }); len(left) > 0 {
		a.t.Errorf("left:\n%s", strings.Join(left, "\n"))
		a.before = append(a.before, left...)
	}
	wantInOrder(a.t, a.Node)
}

func (a *shimmed) run(s *node.Sandbox) error {
	r, err := a.Runtime.RunPodSandbox(a.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: s.Config, RuntimeHandler: "shim"})
	if err == nil {
		s.ID = r.PodSandboxId
		a.Know(s.ID)
	}
	return err
}

// start makes a container and starts it. One that did not start is removed.
func (a *shimmed) start(c *node.Container) (err error) {
	if c.ID, err = c.Sandbox.TryCreate(c.Config); err != nil {
		return err
	}
	if err = c.TryStart(); err != nil {
		_, removed := a.Runtime.RemoveContainer(a.Ctx(), &runtimeapi.RemoveContainerRequest{ContainerId: c.ID})
		return errors.Join(err, removed)
	}
	return nil
}

func (a *shimmed) exec(c *node.Container) error {
	r, err := a.Runtime.ExecSync(a.Ctx(), &runtimeapi.ExecSyncRequest{ContainerId: c.ID, Cmd: []string{"echo", "here"}})
	if err == nil && (string(r.Stdout) != "here\n" || r.ExitCode != 0) {
		err = fmt.Errorf("exec answered %s", r)
	}
	return err
}

func (a *shimmed) stop(c *node.Container) error {
	_, err := a.Runtime.StopContainer(a.Ctx(), &runtimeapi.StopContainerRequest{ContainerId: c.ID, Timeout: 30})
	if err != nil {
		return err
	}
	r, err := a.Runtime.ContainerStatus(a.Ctx(), &runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
	if err == nil && r.Status.ExitCode != 3 {
		err = fmt.Errorf("after it was stopped the container is %s", r.Status)
	}
	return err
}
