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
)

func deleteLink(name string) {
	if l, err := netlink.LinkByName(name); err == nil {
		_ = netlink.LinkDel(l)
	}
}

func TestHandlersAreListedAndChosen(t *testing.T) {
	n := startNode(t, "")
	n.pull(busybox)
	st, err := n.runtime.Status(n.ctx(), &runtimeapi.StatusRequest{Verbose: true})
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
	for _, h := range handlers {
		s := n.runPod(h)
		c := s.start(script("sleep 1000"))
		// The runtime itself knows the container: nobody else ran it.
		if _, err := os.Stat(filepath.Join(n.state, "runtimes", h, c.id)); err != nil {
			t.Errorf("%s does not have the container: %v", h, err)
		}
		got, err := n.runtime.PodSandboxStatus(n.ctx(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.id})
		if err != nil || got.Status.RuntimeHandler != h {
			t.Errorf("%+v %v", got.GetStatus(), err)
		}
		s.remove()
	}
}

func TestUnknownHandlerNamesThoseThatExist(t *testing.T) {
	n := startNode(t, "")
	_, err := n.runtime.RunPodSandbox(n.ctx(), &runtimeapi.RunPodSandboxRequest{Config: n.podConfig(), RuntimeHandler: "gvisor"})
	for _, want := range []string{"gvisor", "runc", "crun"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	if c := status.Code(err); c == codes.Unknown || c == codes.OK {
		t.Errorf("code %s", c)
	}
	if l, err := n.runtime.ListPodSandbox(n.ctx(), &runtimeapi.ListPodSandboxRequest{}); err != nil || len(l.Items) != 0 {
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
		out, err := exec.Command(filepath.Join(bin, "fairlead"), "runtime", "--config", file, "--root", dir+"/lib", "--state", dir+"/run").CombinedOutput()
		if err == nil || !strings.Contains(string(out), tt.want) {
			t.Errorf("%q: want %q in %q", tt.toml, tt.want, out)
		}
		if left, _ := os.ReadDir(dir); len(left) != 1 {
			t.Errorf("%q: left %v", tt.toml, left)
		}
	}
}

func TestBadPodsLeaveNothing(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
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
				n.t = t
				s := n.runPod(h)
				cfg := script("true")
				tt.change(cfg)
				id, err := s.tryCreate(cfg)
				if err == nil {
					err = (&container{s, id, cfg}).tryStart()
				}
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("want %q in %v", tt.want, err)
				}
				s.remove()
			})
		}
		t.Run("unwritable log", func(t *testing.T) {
			n.t = t
			s := n.runPod(h, func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = blocked + "/below" })
			cfg := script("true")
			id, err := s.tryCreate(cfg)
			if err == nil {
				err = (&container{s, id, cfg}).tryStart()
			}
			if err == nil || !strings.Contains(err.Error(), blocked) {
				t.Errorf("got %v", err)
			}
			s.remove()
		})
		t.Run("odd names", func(t *testing.T) {
			n.t = t
			s := n.runPod(h, func(p *runtimeapi.PodSandboxConfig) {
				p.Metadata.Name, p.Metadata.Namespace = "a/../b \n\"ü", "../.."
			})
			cfg := script("echo fine")
			cfg.Metadata.Name = "../../etc/passwd\x01"
			c := s.start(cfg)
			c.wait()
			must(t, c.log(), "fine")
			s.remove()
		})
	})
}
