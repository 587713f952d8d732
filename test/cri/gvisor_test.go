package cri

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// gvisor is a node whose handler runsc is gVisor's. It is no part of
// node.Handlers, because not every option of a container is one of a sandbox.
func gvisor(t *testing.T) *node.Node {
	t.Helper()
	path := node.Runsc()
	if path == "" {
		t.Skip("gVisor's runsc is not on PATH, and FAIRLEAD_TEST_RUNSC does not name it; make test installs it")
	}
	n := node.Start(t, node.RunscConfig(path))
	n.Pull(node.Busybox)
	return n
}

// forever prints a word and goes on until SIGTERM, which it answers with code 3.
const forever = "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.1; done"

func ready(t *testing.T, c *node.Container) {
	t.Helper()
	node.Eventually(t, "ready", func() bool { return strings.Contains(c.Log(), "ready") })
}

func TestGVisorRunsOnePodInOneSandbox(t *testing.T) {
	n := gvisor(t)
	shared := t.TempDir()
	volume := func(c *runtimeapi.ContainerConfig) *runtimeapi.ContainerConfig {
		c.Mounts = append(c.Mounts, &runtimeapi.Mount{HostPath: shared, ContainerPath: "/shared"})
		return c
	}
	s := n.RunPod("runsc")
	web := s.Start(volume(node.Script("mkdir /www && cp /shared/page /www/index.html 2>/dev/null || echo from web > /www/index.html; busybox httpd -p 80 -h /www; " + forever)))
	ready(t, web)
	other := s.Start(volume(node.Script("uname -v; echo written > /shared/file; wget -q -O - http://127.0.0.1/; exit 7")))
	if st := other.Wait(); st.ExitCode != 7 || st.Reason != "Error" {
		t.Errorf("the second container: %+v", st)
	}
	if !strings.Contains(other.Log(), "from web") { // one network, with its own loopback
		t.Errorf("the web server's page: %q", other.Log())
	}
	if host := kernel(t); strings.Contains(other.Log(), host) {
		t.Errorf("the container sees the host's kernel %q", host)
	}
	if b, err := os.ReadFile(filepath.Join(shared, "file")); err != nil || string(b) != "written\n" {
		t.Errorf("the shared folder: %q %v", b, err)
	}
	if got := sentries(t, n); got != 1 {
		t.Errorf("%d sandboxes for one pod", got)
	}
	// The other containers of the pod do not mind, and neither does another pod.
	if st := web.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the first container: %+v", st)
	}
	second := n.RunPod("runsc")
	if st := second.Start(node.Script("exit 0")).Wait(); st.ExitCode != 0 || st.Reason != "Completed" {
		t.Errorf("in a second pod: %+v", st)
	}
	if got := sentries(t, n); got != 2 {
		t.Errorf("%d sandboxes for two pods", got)
	}
	if out, err := n.CLI("fsck"); err != nil {
		t.Errorf("fsck: %v: %s", err, out)
	}
	second.Remove()
	web.Stop(30)
	if st := web.Status(); st.ExitCode != 3 {
		t.Errorf("after SIGTERM: %+v", st)
	}
	if !strings.Contains(web.Log(), "bye") {
		t.Errorf("log %q", web.Log())
	}
	s.Remove()
	if got := sentries(t, n); got != 0 {
		t.Errorf("%d sandboxes are left", got)
	}
}

// kernel is the version of the host's kernel, which "uname -v" prints.
func kernel(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("uname", "-v").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// sentries counts the processes of the node in which pods run.
func sentries(t *testing.T, n *node.Node) (count int) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		b, _ := os.ReadFile(l) // it may have ended
		if strings.HasPrefix(string(b), "runsc-sandbox\x00") && strings.Contains(string(b), n.State) {
			count++
		}
	}
	return count
}

func TestGVisorEndsContainers(t *testing.T) {
	n := gvisor(t)
	s := n.RunPod("runsc")
	stubborn := s.Start(node.Script("trap '' TERM; echo ready; while :; do sleep 0.1; done"))
	child := s.Start(node.Script("(trap '' TERM; while :; do sleep 0.1; done) & echo ready; wait"))
	for _, c := range []*node.Container{stubborn, child} {
		ready(t, c)
		c.Stop(1)
		if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.ExitCode != 137 && st.ExitCode != 143 {
			t.Errorf("%+v", st)
		}
	}
	if err := s.Create(missing()).TryStart(); err == nil || !strings.Contains(err.Error(), `no program "/not-there"`) {
		t.Errorf("a program that is missing: %v", err)
	}
	// A sandbox that dies takes its containers along, and nobody else.
	other := n.RunPod("runsc")
	safe := other.Start(node.Script(forever))
	ready(t, safe)
	victim := s.Start(node.Script(forever))
	ready(t, victim)
	killSentry(t, s.ID)
	if st := victim.Wait(); st.ExitCode != 137 {
		t.Errorf("a container whose sandbox died: %+v", st)
	}
	node.Eventually(t, "the pod not ready", func() bool {
		got, err := n.Runtime.PodSandboxStatus(n.Ctx(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.ID})
		return err == nil && got.Status.State == runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	})
	if st := safe.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("a container of another pod: %+v", st)
	}
	s.Remove()
	other.Remove()
}

func missing() *runtimeapi.ContainerConfig {
	c := node.Script("")
	c.Command = []string{"/not-there"}
	return c
}

func killSentry(t *testing.T, pod string) {
	t.Helper()
	if err := syscall.Kill(sentryOf(t, pod), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// sentryOf is the process in which a pod runs.
func sentryOf(t *testing.T, pod string) (pid int) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		b, _ := os.ReadFile(l)
		if !strings.HasPrefix(string(b), "runsc-sandbox\x00") || !strings.Contains(string(b), pod) {
			continue
		}
		if _, err := fmt.Sscanf(l, "/proc/%d/", &pid); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	t.Fatalf("pod %s has no sandbox", pod)
	return 0
}

func TestGVisorExecAndAttach(t *testing.T) {
	n := gvisor(t)
	s := n.RunPod("runsc")
	c := s.Start(node.Script("echo inside > /tmp/mark; " + forever))
	ready(t, c)
	must(t, c.Exec("cat", "/tmp/mark"), "inside")
	r, err := n.Runtime.ExecSync(n.Ctx(), &runtimeapi.ExecSyncRequest{ContainerId: c.ID, Cmd: []string{"sh", "-c", "echo no >&2; exit 9"}})
	if err != nil || r.ExitCode != 9 || string(r.Stderr) != "no\n" {
		t.Errorf("exec: %+v %v", r, err)
	}
	cfg := node.Script("read line; echo got $line; exit 4")
	cfg.Stdin, cfg.StdinOnce = true, true
	reader := s.Start(cfg)
	reader.Attach(false, func(stdin io.Writer, out func() string, _ chan<- remotecommand.TerminalSize) {
		if _, err := io.WriteString(stdin, "hello\n"); err != nil {
			t.Error(err)
		}
		node.Eventually(t, "the answer", func() bool { return strings.Contains(out(), "got hello") })
	})
	if st := reader.Wait(); st.ExitCode != 4 {
		t.Errorf("the reader: %+v", st)
	}
	cfg = node.Script("test -t 1 && echo ready; read line; stty size; exit 5")
	cfg.Tty, cfg.Stdin = true, true
	terminal := s.Start(cfg)
	ready(t, terminal)
	terminal.Attach(true, func(stdin io.Writer, out func() string, _ chan<- remotecommand.TerminalSize) {
		if _, err := io.WriteString(stdin, "word\n"); err != nil {
			t.Error(err)
		}
		node.Eventually(t, "the terminal's echo", func() bool { return strings.Contains(out(), "word") })
	})
	if st := terminal.Wait(); st.ExitCode != 5 {
		t.Errorf("the terminal: %+v, log %q", st, terminal.Log())
	}
	s.Start(node.Script("mkdir /www && echo page > /www/index.html && httpd -f -p 127.0.0.1:8080 -h /www"))
	c.Exec("sh", "-c", "until wget -qO- http://127.0.0.1:8080/; do sleep 0.1; done")
	addr, stop := forwardTo(t, s, forwarders["spdy"], 8080)
	node.Eventually(t, "a page", func() bool { return strings.Contains(fetch("http://"+addr+"/"), "page") })
	stop()
	s.Remove()
}

func TestGVisorOutlivesDaemonAndMonitor(t *testing.T) {
	n := gvisor(t)
	s := n.RunPod("runsc")
	c := s.Start(node.Script("i=0; while :; do echo $i; i=$((i+1)); sleep 0.1; done"))
	late := s.Start(node.Script("until [ -f /tmp/end ]; do sleep 0.1; done; exit 6"))
	node.Grown(t, []*node.Container{c})
	n.Kill(syscall.SIGKILL)
	n.Start()
	for _, which := range []string{"inner", "outer"} {
		n.KillMonitor(which)
		node.Grown(t, []*node.Container{c})
	}
	late.Exec("touch", "/tmp/end")
	if st := late.Wait(); st.ExitCode != 6 {
		t.Errorf("a container that ended afterwards: %+v", st)
	}
	for i, line := range strings.Split(strings.TrimSpace(c.Log()), "\n") {
		if line != fmt.Sprint(i) {
			t.Fatalf("line %d of the log is %q", i, line)
		}
	}
	c.Stop(0)
	if st := c.Status(); st.ExitCode != 137 {
		t.Errorf("%+v", st)
	}
	s.Remove()
}

func TestGVisorHasThePodsLimits(t *testing.T) {
	n := gvisor(t)
	const limit = 300 << 20
	s := n.RunPod("runsc", func(p *runtimeapi.PodSandboxConfig) {
		p.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: limit}
	})
	c := s.Start(node.Script(forever))
	ready(t, c)
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", sentryOf(t, s.ID)))
	if err != nil {
		t.Fatal(err)
	}
	if in := string(groups); !strings.Contains(in, "pod"+s.ID+"/") && !strings.Contains(in, "pod"+s.ID+".slice/") {
		t.Error("the sandbox is not in the pod's cgroup")
	}
	p, err := n.Runtime.PodSandboxStats(n.Ctx(), &runtimeapi.PodSandboxStatsRequest{PodSandboxId: s.ID})
	if err != nil || p.Stats.Linux.Memory.WorkingSetBytes.GetValue() < 1<<20 {
		t.Errorf("stats of the pod: %+v %v", p.GetStats(), err)
	}
	s.Remove()
}

// What is executed ends inside when nobody waits for it any more, with all that it
// has started.
func TestGVisorEndsCommands(t *testing.T) {
	n := gvisor(t)
	s := n.RunPod("runsc")
	c := s.Start(node.Script(forever))
	ready(t, c)
	r, err := n.Runtime.ExecSync(n.Ctx(), &runtimeapi.ExecSyncRequest{
		ContainerId: c.ID, Timeout: 1,
		Cmd: []string{"sh", "-c", "trap '' TERM HUP; (trap '' TERM HUP; sleep 3333) & sleep 3333"},
	})
	if err == nil {
		t.Errorf("%+v", r)
	}
	if left := inContainer(c); strings.Contains(left, "3333") {
		t.Errorf("after the command's timeout there is %s", left)
	}
	if !strings.Contains(inContainer(c), "trap") { // the container's own
		t.Errorf("the processes are %s", inContainer(c))
	}
	s.Remove()
}

// inContainer is the command lines of the processes in a container.
func inContainer(c *node.Container) string {
	c.Sandbox.Node.T.Helper()
	r, err := c.Sandbox.Node.Runtime.ExecSync(c.Sandbox.Node.Ctx(), &runtimeapi.ExecSyncRequest{ContainerId: c.ID, Cmd: []string{"ps"}})
	if err != nil || r.ExitCode != 0 {
		c.Sandbox.Node.T.Fatal(r, err)
	}
	return string(r.Stdout)
}

// A sandbox that hangs is stopped and removed all the same.
func TestGVisorThatHangsIsStopped(t *testing.T) {
	n := gvisor(t)
	s, other := n.RunPod("runsc"), n.RunPod("runsc")
	c, safe := s.Start(node.Script(forever)), other.Start(node.Script(forever))
	ready(t, c)
	ready(t, safe)
	if err := syscall.Kill(sentryOf(t, s.ID), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.Stop(1)
	if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.ExitCode != 137 {
		t.Errorf("%+v", st)
	}
	s.Remove()
	if got := sentries(t, n); got != 1 {
		t.Errorf("%d sandboxes are left, want that of the other pod", got)
	}
	if st := safe.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the other pod's container: %+v", st)
	}
	other.Remove()
	if out, err := n.CLI("fsck"); err != nil {
		t.Errorf("fsck: %v: %s", err, out)
	}
}
