package cri

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// underEnforced runs f under every handler where SELinux keeps containers from
// what is not theirs. testdata/selinux/load makes a machine for tests such a one.
func underEnforced(t *testing.T, f func(t *testing.T, n *node.Node, handler string)) {
	t.Helper()
	enforce, err := os.ReadFile("/sys/fs/selinux/enforce")
	if err != nil || !kernelHasSELinux() || strings.TrimSpace(string(enforce)) != "1" {
		t.Skip("needs a host with SELinux, and a policy that is enforced (testdata/selinux/load in a machine for tests)")
	}
	node.UnderEach(t, f)
}

// labelOf is the SELinux label of a file of the host.
func labelOf(t *testing.T, path string) string {
	t.Helper()
	b := make([]byte, 256)
	n, err := unix.Lgetxattr(path, "security.selinux", b)
	if err != nil {
		t.Fatalf("label of %s: %v", path, err)
	}
	return strings.TrimRight(string(b[:n]), "\x00")
}

const tryRead = "cat /v/file 2>&1 && echo read; true"

func TestSELinuxLetsContainersWork(t *testing.T) {
	underEnforced(t, func(t *testing.T, n *node.Node, h string) {
		got := n.Inside(h, "id -u; grep -c localhost /etc/hosts; cat /etc/hostname >/dev/null; "+
			"echo mine >/new; cat /new; mkdir /d; mv /new /d/; rm -r /d; echo shm >/dev/shm/x; cat /dev/shm/x; echo err >&2; "+
			"echo n >/dev/null; ls -d /proc/self /sys/fs/cgroup; grep -c ' / overlay .*context=' /proc/mounts", nil)
		for _, want := range []string{"mine\n", "shm\n", "err\n", "/sys/fs/cgroup\n", "1\n"} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in %q", want, got)
			}
		}
		n.Inside(h, "test ! -w /x; echo hi >/dev/shm/y", secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.NoNewPrivs, s.ReadonlyRootfs = true, true
			s.RunAsUser = &runtimeapi.Int64Value{Value: 1000}
		}))
		n.Inside(h, "ps | grep -q pause", func(c *containerConfig) {
			c.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
		}, node.SharedPID)
	})
}

func TestSELinuxLetsStreamsThrough(t *testing.T) {
	underEnforced(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		cfg := node.Script("while read line; do echo got $line; done")
		cfg.Stdin = true
		plain := s.Start(cfg)
		// Opened by its path, as programs do with /dev/stdout.
		must(t, plain.Exec("sh", "-c", "echo there >/proc/1/fd/1; echo exec >/dev/stdout"), "exec\n")
		plain.Attach(false, func(stdin io.Writer, out func() string, _ chan<- remotecommand.TerminalSize) {
			if _, err := io.WriteString(stdin, "hello\n"); err != nil {
				t.Error(err)
			}
			node.Eventually(t, "the input comes back", func() bool { return strings.Contains(out(), "got hello") })
		})
		if !strings.Contains(plain.Log(), "there\n") {
			t.Errorf("the log is %q", plain.Log())
		}
		if got, want := labelOf(t, filepath.Join(n.State, "containers", plain.ID, "io", "stdout")), "container_file_t"; !strings.Contains(got, want) {
			t.Errorf("the output has the label %s", got)
		}
		cfg = node.Script("tty; read line; echo got $line; sleep 1000")
		cfg.Tty, cfg.Stdin = true, true
		terminal := s.Start(cfg)
		terminal.Attach(true, func(stdin io.Writer, out func() string, _ chan<- remotecommand.TerminalSize) {
			if _, err := io.WriteString(stdin, "hello\n"); err != nil {
				t.Error(err)
			}
			node.Eventually(t, "the input comes back", func() bool { return strings.Contains(out(), "got hello") })
		})
		e, err := node.SPDYExecutor(terminal.ExecURL(&runtimeapi.ExecRequest{Cmd: []string{"tty"}, Tty: true, Stdin: true, Stdout: true}))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := e.StreamWithContext(n.Ctx(), remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: &out, Tty: true}); err != nil || !strings.Contains(out.String(), "/dev/pts/") {
			t.Errorf("exec with a terminal: %q, %v", out.String(), err)
		}
	})
}

func TestSELinuxKeepsApart(t *testing.T) {
	underEnforced(t, func(t *testing.T, n *node.Node, h string) {
		dir := hostDir(t)
		plain := mounts(&runtimeapi.Mount{HostPath: dir, ContainerPath: "/v"})
		if got := n.Inside(h, tryRead, plain); !strings.Contains(got, "Permission denied") {
			t.Errorf("a container reads a file of the host: %q", got)
		}
		must(t, n.Inside(h, tryRead, func(c *containerConfig) {
			plain(c)
			c.Linux.SecurityContext.Privileged = true
		}, privilegedPod), "from the host\nread\n")
		must(t, n.Inside(h, tryRead, func(c *containerConfig) {
			plain(c)
			c.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_NODE
		}, func(p *runtimeapi.PodSandboxConfig) {
			p.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_NODE
		}), "from the host\nread\n")

		one := n.RunPod(h)
		give := node.Script(tryRead + "; sleep 1000")
		give.Mounts = []*runtimeapi.Mount{{HostPath: dir, ContainerPath: "/v", SelinuxRelabel: true}}
		owner := one.Start(give)
		must(t, owner.Exec("cat", "/v/file"), "from the host\n")
		// Another container of the pod shares the level, another pod does not.
		again := node.Script("sleep 1000")
		again.Mounts = []*runtimeapi.Mount{{HostPath: dir, ContainerPath: "/v"}}
		must(t, one.Start(again).Exec("cat", "/v/file"), "from the host\n")
		if got := n.Inside(h, tryRead, plain); !strings.Contains(got, "Permission denied") {
			t.Errorf("a container reads the volume of another pod: %q", got)
		}
		// One that asks for the same level may.
		_, level, _ := strings.Cut(labelOf(t, dir), "_file_t:")
		must(t, n.Inside(h, tryRead, func(c *containerConfig) {
			plain(c)
			labelled(&runtimeapi.SELinuxOption{Level: level})(c)
		}), "from the host\nread\n")
	})
}

// A container with a level of its own shares the pod's files, and takes them
// from nobody.
func TestSELinuxLevelsInOnePod(t *testing.T) {
	underEnforced(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		first := s.Start(node.Script("echo first >/dev/shm/one; sleep 1000"))
		cfg := node.Script("sleep 1000")
		labelled(&runtimeapi.SELinuxOption{Level: "s0:c1,c2"})(cfg)
		second := s.Start(cfg)
		for name, c := range map[string]*node.Container{"of-first": first, "of-second": second} {
			c.Exec("sh", "-c", "grep localhost /etc/hosts && cat /etc/resolv.conf /etc/hostname && echo x >/dev/shm/"+name)
		}
		third := s.Start(node.Script("sleep 1000"))
		third.Exec("sh", "-c", "grep localhost /etc/hosts && cat /dev/shm/one")
		first.Exec("grep", "localhost", "/etc/hosts")
	})
}

func TestSELinuxUnknownType(t *testing.T) {
	underEnforced(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		cfg := node.Script("true")
		labelled(&runtimeapi.SELinuxOption{Type: "unheard_of_t"})(cfg)
		if _, err := s.TryCreate(cfg); err == nil || !strings.Contains(err.Error(), "unheard_of_t") || !strings.Contains(err.Error(), "selinux_options") {
			t.Errorf("got %v", err)
		}
	})
}

// A new daemon knows the levels that an earlier one has given, and a root file
// system that it mounts again has its label.
func TestSELinuxAfterRestart(t *testing.T) {
	underEnforced(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		const own = "tr -d '\\000' </proc/self/attr/current"
		before := s.Start(node.Script("sleep 1000")).Exec("sh", "-c", own)
		created := s.Create(node.Script("sleep 1000"))
		n.Kill(9)
		n.Start()
		if err := unix.Unmount(filepath.Join(n.State, "containers", created.ID, "rootfs"), 0); err != nil {
			t.Fatal(err)
		}
		if out, err := n.CLI("fsck", "--repair"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := created.TryStart(); err != nil {
			t.Fatal(err)
		}
		if st := created.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Fatalf("it has ended: %v; its log: %s", st, created.Log())
		}
		if after := created.Exec("sh", "-c", "echo x >/new; "+own); after != before {
			t.Errorf("label %q before and %q after the restart", before, after)
		}
	})
}
