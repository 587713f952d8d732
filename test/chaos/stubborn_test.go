package chaos

import (
	"bufio"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// stubborn is a container that does not end when its first process is killed.
// That process ends after all others of its PID namespace, and one of them
// stays for as long as its parent, which is on the host, does not run.
type stubborn struct {
	*node.Container
	parent *exec.Cmd
}

// stubbornRequests pass both rungs of the kill ladder.
func (st *story) stubbornRequests() []request {
	c := node.Script("")
	c.Command, c.Image.Image = []string{"sleep", "100000"}, st.tag
	s := &stubborn{Container: &node.Container{Sandbox: st.pod, Config: c}}
	return []request{
		{name: "create the stubborn container", makes: true, do: func() error { return st.create(s.Container) }},
		{name: "start the stubborn container", do: s.start},
		{name: "stop the stubborn container", do: func() error { return errors.Join(st.kill(s.Container), s.give()) }},
		{name: "see how the stubborn container ended", do: func() error { return st.wantKilled(s.Container) }},
	}
}

// start adds the process that stays.
func (s *stubborn) start() error {
	if err := s.TryStart(); err != nil || s.parent != nil {
		return err
	}
	first, _, _ := strings.Cut(s.CgroupFile("pids", "cgroup.procs", "cgroup.procs"), "\n")
	cmd := exec.Command("nsenter", "--target", first, "--pid", "--", "sh", "-c", "echo in; exec sleep 100000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.parent = cmd
	s.Sandbox.Node.T.Cleanup(func() { _ = s.give() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("nothing got into the PID namespace of %s: %w", first, err)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	var stopped syscall.WaitStatus
	_, err = syscall.Wait4(cmd.Process.Pid, &stopped, syscall.WUNTRACED, nil)
	if err == nil && !stopped.Stopped() {
		err = fmt.Errorf("nsenter is not stopped: %#x", stopped)
	}
	return err
}

// give lets the container end: the parent takes the end of its child, and ends.
// That of a child that was not killed would not.
func (s *stubborn) give() error {
	if s.parent == nil || s.parent.ProcessState != nil {
		return nil
	}
	if err := s.parent.Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	late := time.AfterFunc(node.Patience, func() { _ = s.parent.Process.Kill() })
	defer late.Stop()
	_ = s.parent.Wait() // says how the child ended
	return nil
}

// kill stops a container without a grace period.
func (st *story) kill(c *node.Container) error {
	_, err := st.n.Runtime.StopContainer(st.n.Ctx(), &runtimeapi.StopContainerRequest{ContainerId: c.ID})
	return err
}

func (st *story) wantKilled(c *node.Container) error {
	r, err := st.n.Runtime.ContainerStatus(st.n.Ctx(), &runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
	if err == nil && (r.Status.State != runtimeapi.ContainerState_CONTAINER_EXITED || r.Status.ExitCode != 137) {
		err = fmt.Errorf("after it was killed the container is %s", r.Status)
	}
	return err
}
