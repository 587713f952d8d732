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

// shimProgram finds a shim that make test builds.
func shimProgram(t *testing.T, name string) string {
	t.Helper()
	if dir := os.Getenv("FAIRLEAD_TEST_SHIMS"); dir != "" {
		return filepath.Join(dir, name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not on PATH, and FAIRLEAD_TEST_SHIMS names no folder with it; make test builds it", name)
	}
	return path
}

// shims are nodes whose handler "shim" is a real one, by its name.
var shims = map[string]func(t *testing.T) *node.Node{
	"runc": func(t *testing.T) *node.Node {
		return shimNode(t, fmt.Sprintf("runtime_type = \"io.containerd.runc.v2\"\npath = %q\n", shimProgram(t, "containerd-shim-runc-v2")))
	},
	"gVisor": func(t *testing.T) *node.Node {
		runsc := os.Getenv("FAIRLEAD_TEST_RUNSC")
		if runsc == "" {
			t.Skip("FAIRLEAD_TEST_RUNSC does not name gVisor's runsc; make test installs it")
		}
		file := filepath.Join(t.TempDir(), "runsc.toml")
		text := fmt.Sprintf("binary_name = %q\n[runsc_config]\noverlay2 = \"none\"\nsystemd-cgroup = \"false\"\n", runsc)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return shimNode(t, fmt.Sprintf("runtime_type = \"io.containerd.runsc.v1\"\npath = %q\nconfig_path = %q\n[handlers.shim.options]\nTypeUrl = \"io.containerd.runsc.v1.options\"\n",
			shimProgram(t, "containerd-shim-runsc-v1"), file))
	},
}

func shimNode(t *testing.T, text string) *node.Node {
	t.Helper()
	n := node.Start(t, "[handlers.runc]\n[handlers.shim]\ntype = \"shim\"\n"+text)
	n.Pull(node.Busybox)
	return n
}

// eachShim runs a test with each.
func eachShim(t *testing.T, f func(t *testing.T, n *node.Node)) {
	for name, start := range shims {
		t.Run(name, func(t *testing.T) { f(t, start(t)) })
	}
}

// shimPIDs are the processes of shims that serve pods of a node.
func shimPIDs(t *testing.T, n *node.Node) (pids []int) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		b, _ := os.ReadFile(l) // it may have ended
		words := strings.Split(string(b), "\x00")
		if !strings.HasPrefix(filepath.Base(words[0]), "containerd-shim-") || !strings.Contains(string(b), n.State) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(l, "/proc/%d/", &pid); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

func TestShimRunsOnePodInOneShim(t *testing.T) {
	eachShim(t, func(t *testing.T, n *node.Node) {
		shared := t.TempDir()
		volume := func(c *runtimeapi.ContainerConfig) *runtimeapi.ContainerConfig {
			c.Mounts = append(c.Mounts, &runtimeapi.Mount{HostPath: shared, ContainerPath: "/shared"})
			return c
		}
		s := n.RunPod("shim")
		web := s.Start(volume(node.Script("mkdir /www && echo from web > /www/index.html; busybox httpd -p 80 -h /www; " + forever)))
		ready(t, web)
		other := s.Start(volume(node.Script("echo written > /shared/file; until wget -q -O - http://127.0.0.1/; do sleep 0.1; done; exit 7")))
		if st := other.Wait(); st.ExitCode != 7 || st.Reason != "Error" {
			t.Errorf("the second container: %+v", st)
		}
		if !strings.Contains(other.Log(), "from web") { // one network, with its own loopback
			t.Errorf("the web server's page: %q", other.Log())
		}
		addr, stop := forwardTo(t, s, forwarders["spdy"], 80)
		node.Eventually(t, "the page by a forwarded port", func() bool { return strings.Contains(fetch("http://"+addr+"/"), "from web") })
		stop()
		if b, err := os.ReadFile(filepath.Join(shared, "file")); err != nil || string(b) != "written\n" {
			t.Errorf("the shared folder: %q %v", b, err)
		}
		if got := len(shimPIDs(t, n)); got != 1 {
			t.Errorf("%d shims for one pod", got)
		}
		if err := s.Create(missing()).TryStart(); err == nil || !strings.Contains(err.Error(), `no program "/not-there"`) {
			t.Errorf("a program that is missing: %v", err)
		}
		if st := web.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("the first container: %+v", st)
		}
		if out, err := n.CLI("fsck"); err != nil {
			t.Errorf("fsck: %v: %s", err, out)
		}
		web.Stop(30)
		if st := web.Status(); st.ExitCode != 3 || !strings.Contains(web.Log(), "bye") {
			t.Errorf("after SIGTERM: %+v, log %q", st, web.Log())
		}
		stubborn := s.Start(node.Script("trap '' TERM; echo ready; while :; do sleep 0.1; done"))
		ready(t, stubborn)
		stubborn.Stop(1)
		if st := stubborn.Status(); st.ExitCode != 137 {
			t.Errorf("after SIGKILL: %+v", st)
		}
		s.Remove()
		if got := shimPIDs(t, n); len(got) != 0 {
			t.Errorf("shims are left: %v", got)
		}
	})
}

// Containers share the processes of their pod where it wants that, in a sandbox too.
func TestShimSharesProcesses(t *testing.T) {
	eachShim(t, func(t *testing.T, n *node.Node) {
		a, b := pair(n, "shim", &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD})
		if got := a.Exec("ps"); strings.Count(got, "sleep 1000") < 2 || !strings.Contains(got, "pause") {
			t.Errorf("ps: %s", got)
		}
		b.Stop(0)
		a.Sandbox.Remove()
	})
}

// Pods of runc's shim have what pods of runc have: the node's namespaces, user
// namespaces and kernel parameters.
func TestShimNamespaces(t *testing.T) {
	n := shims["runc"](t)
	a, _ := pair(n, "shim", &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_NODE, Ipc: runtimeapi.NamespaceMode_NODE,
	})
	for _, kind := range []string{"net", "ipc", "pid"} {
		if a.NS(kind) != hostNS(t, kind) {
			t.Errorf("%s is not the node's", kind)
		}
	}
	a.Sandbox.Remove()
	s := n.RunPod("shim", func(p *runtimeapi.PodSandboxConfig) {
		p.Linux.Sysctls = map[string]string{"kernel.shm_rmid_forced": "1"}
	})
	c := s.Start(node.Script(forever))
	must(t, c.Exec("cat", "/proc/sys/kernel/shm_rmid_forced"), "1")
	s.Remove()
	if n.Features("shim").GetUserNamespaces() != n.Features("runc").GetUserNamespaces() {
		t.Errorf("features: %v, and those of runc %v", n.Features("shim"), n.Features("runc"))
	}
	needUserNamespaces(t, n, "shim")
	must(t, strings.Join(strings.Fields(insideMapped(n, "shim", "cat /proc/self/uid_map", nil)), " "), fmt.Sprintf("0 %d %d", firstID, idCount))
}

func TestShimExecAndAttach(t *testing.T) {
	eachShim(t, func(t *testing.T, n *node.Node) {
		s := n.RunPod("shim")
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
		cfg = node.Script("test -t 1 && echo ready; read line; until [ \"$(stty size)\" = '7 31' ]; do sleep 0.1; done; exit 5")
		cfg.Tty, cfg.Stdin = true, true
		terminal := s.Start(cfg)
		ready(t, terminal)
		terminal.Attach(true, func(stdin io.Writer, out func() string, sizes chan<- remotecommand.TerminalSize) {
			sizes <- remotecommand.TerminalSize{Width: 31, Height: 7}
			if _, err := io.WriteString(stdin, "word\n"); err != nil {
				t.Error(err)
			}
			node.Eventually(t, "the terminal's echo", func() bool { return strings.Contains(out(), "word") })
		})
		if st := terminal.Wait(); st.ExitCode != 5 {
			t.Errorf("the terminal: %+v, log %q", st, terminal.Log())
		}
		s.Remove()
	})
}

func TestShimOutlivesDaemonAndMonitor(t *testing.T) {
	eachShim(t, func(t *testing.T, n *node.Node) {
		s := n.RunPod("shim")
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
	})
}

// Containers of runc's shim are the host's, and have limits and stats of their own.
func TestShimLimitsAndStats(t *testing.T) {
	n := shims["runc"](t)
	s := n.RunPod("shim", func(p *runtimeapi.PodSandboxConfig) {
		p.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD}}
	})
	cfg := node.Script("echo $$; " + forever)
	cfg.Linux = &runtimeapi.LinuxContainerConfig{
		Resources:       &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 64 << 20},
		SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD}},
	}
	c := s.Start(cfg)
	ready(t, c)
	if first, _, _ := strings.Cut(c.Log(), "\n"); strings.TrimSpace(first) == "1" || len(first) > 3 {
		t.Errorf("its pid in the pod's namespace is %q", first)
	}
	memory := func() int64 {
		st, err := n.Runtime.ContainerStatus(n.Ctx(), &runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
		if err != nil {
			t.Fatal(err)
		}
		return st.Status.Resources.Linux.MemoryLimitInBytes
	}
	if got := memory(); got != 64<<20 {
		t.Errorf("the limit is %d", got)
	}
	if _, err := n.Runtime.UpdateContainerResources(n.Ctx(), &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: c.ID, Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 32 << 20},
	}); err != nil {
		t.Fatal(err)
	}
	if got := memory(); got != 32<<20 {
		t.Errorf("after the update the limit is %d", got)
	}
	st, err := n.Runtime.ContainerStats(n.Ctx(), &runtimeapi.ContainerStatsRequest{ContainerId: c.ID})
	if err != nil || st.Stats.Memory.GetWorkingSetBytes().GetValue() == 0 || st.Stats.Cpu.GetUsageCoreNanoSeconds().GetValue() == 0 {
		t.Errorf("stats: %+v %v", st.GetStats(), err)
	}
	eater := node.Script("exec tail -n 1 /dev/zero")
	eater.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 16 << 20, MemorySwapLimitInBytes: 16 << 20}}
	if st := s.Start(eater).Wait(); st.Reason != "OOMKilled" || st.ExitCode != 137 {
		t.Errorf("a container that wants more memory than it may have: %+v", st)
	}
	s.Remove()
}
