package cri

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

func deleteLink(name string) {
	if l, err := netlink.LinkByName(name); err == nil {
		_ = netlink.LinkDel(l)
	}
}

func TestHandlersAreListedAndChosen(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	st, err := n.Runtime.Status(n.Ctx(), &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, h := range st.RuntimeHandlers {
		names[h.Name] = true
	}
	for _, want := range []string{"", "runc", "crun"} {
		if !names[want] {
			t.Errorf("handler %q is not listed: %v", want, st.RuntimeHandlers)
		}
	}
	if len(st.Info) == 0 {
		t.Error("no verbose information")
	}
	for _, h := range node.Handlers {
		s := n.RunPod(h)
		c := s.Start(node.Script("sleep 1000"))
		// The runtime itself knows the container: nobody else ran it.
		if _, err := os.Stat(filepath.Join(n.State, "runtimes", h, c.ID)); err != nil {
			t.Errorf("%s does not have the container: %v", h, err)
		}
		got, err := n.Runtime.PodSandboxStatus(n.Ctx(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.ID})
		if err != nil || got.Status.RuntimeHandler != h {
			t.Errorf("%+v %v", got.GetStatus(), err)
		}
		s.Remove()
	}
}

func TestUnknownHandlerNamesThoseThatExist(t *testing.T) {
	n := node.Start(t, "")
	_, err := n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: n.PodConfig(), RuntimeHandler: "gvisor"})
	for _, want := range []string{"gvisor", "runc", "crun"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	if c := status.Code(err); c == codes.Unknown || c == codes.OK {
		t.Errorf("code %s", c)
	}
	if l, err := n.Runtime.ListPodSandbox(n.Ctx(), &runtimeapi.ListPodSandboxRequest{}); err != nil || len(l.Items) != 0 {
		t.Errorf("%+v %v", l, err)
	}
}

func TestConfigurationErrorsSayWhere(t *testing.T) {
	for _, tt := range []struct{ toml, want string }{
		{"version = 1\nrot = \"/x\"\n", "config.toml:2"},
		{"version = 1\nrot = \"/x\"\n", "root"},
		{"[handlers.runc\n", "config.toml:1"},
		{"[network]\nmtu = \"big\"\n", "config.toml:2"},
		{"[handlers.\"Not A Label\"]\n", "Not A Label"},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "config.toml")
		if err := os.WriteFile(file, []byte(tt.toml), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(filepath.Join(node.Bin, "fairlead"), "runtime", "--config", file, "--root", dir+"/lib", "--state", dir+"/run").CombinedOutput()
		if err == nil || !strings.Contains(string(out), tt.want) {
			t.Errorf("%q: want %q in %q", tt.toml, tt.want, out)
		}
		if left, _ := os.ReadDir(dir); len(left) != 1 {
			t.Errorf("%q: left %v", tt.toml, left)
		}
	}
}

func TestBadPodsLeaveNothing(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		blocked := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(blocked, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name   string
			change func(*containerConfig)
			want   string
		}{
			{"missing image", func(c *containerConfig) { c.Image.Image = "nowhere.example/none:1" }, "none:1"},
			{"missing program", func(c *containerConfig) { c.Command = []string{"/no/such/program"} }, "/no/such/program"},
			{"nothing to run", func(c *containerConfig) { c.Command = nil; c.Metadata = nil }, "metadata"},
			{"relative mount", func(c *containerConfig) {
				c.Mounts = []*runtimeapi.Mount{{HostPath: "/tmp", ContainerPath: "not/absolute/\x00"}}
			}, "mount"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				n.T = t
				s := n.RunPod(h)
				cfg := node.Script("true")
				tt.change(cfg)
				id, err := s.TryCreate(cfg)
				if err == nil {
					err = (&node.Container{Sandbox: s, ID: id, Config: cfg}).TryStart()
				}
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("want %q in %v", tt.want, err)
				}
				s.Remove()
			})
		}
		t.Run("unwritable log", func(t *testing.T) {
			n.T = t
			s := n.RunPod(h, func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = blocked + "/below" })
			cfg := node.Script("true")
			id, err := s.TryCreate(cfg)
			if err == nil {
				err = (&node.Container{Sandbox: s, ID: id, Config: cfg}).TryStart()
			}
			if err == nil || !strings.Contains(err.Error(), blocked) {
				t.Errorf("got %v", err)
			}
			s.Remove()
		})
		t.Run("odd names", func(t *testing.T) {
			n.T = t
			s := n.RunPod(h, func(p *runtimeapi.PodSandboxConfig) {
				p.Metadata.Name, p.Metadata.Namespace = "a/../b \n\"ü", "../.."
			})
			cfg := node.Script("echo fine")
			cfg.Metadata.Name = "../../etc/passwd\x01"
			c := s.Start(cfg)
			c.Wait()
			must(t, c.Log(), "fine")
			s.Remove()
		})
	})
}

// A program that does what a runtime says but runs nothing is no handler, and
// one that is put in the place of a good one is noticed.
func TestHandlersAreVerified(t *testing.T) {
	real, err := exec.LookPath(node.Handlers[0])
	if err != nil {
		t.Skipf("needs %s: %v", node.Handlers[0], err)
	}
	dir := t.TempDir()
	good, liar := filepath.Join(dir, "good"), filepath.Join(dir, "liar")
	for path, script := range map[string]string{
		good: "#!/bin/sh\nexec " + real + " \"$@\"\n",
		liar: "#!/bin/sh\ncase \"$*\" in *--version|*features) exec " + real + " \"$@\";; esac\nexit 0\n",
	} {
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n := node.Start(t, "[handlers.good]\npath = \""+good+"\"\n[handlers.liar]\npath = \""+liar+"\"\n")
	out, err := n.CLI("handlers", "verify", "good")
	if err != nil {
		t.Fatal(err)
	}
	mustSay(t, out, "run a container", "handler good works; a container starts in ", "features: ")
	const why = "whose program never ran"
	if out, err := n.CLI("handlers", "verify", "liar"); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("the liar: %v\n%s", err, out)
	}
	if out, err = n.CLI("handlers", "-o", "wide"); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		switch name, _, _ := strings.Cut(line, " "); name {
		case "good":
			mustSay(t, line, "Ready", " ago")
		case "liar":
			mustSay(t, line, "Failed", why)
		}
	}
	if err := os.Rename(liar, good); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: n.PodConfig(), RuntimeHandler: "good"}); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("after it was swapped: %v", err)
	}
}
