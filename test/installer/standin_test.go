package installer

import (
	"context"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/test/node"
)

// standin does as CRI-O, where that is not here: by SIGHUP it reads every file in its
// folder, temporary ones too, takes the handlers of all of them, and keeps what it had
// if one is garbage. It runs in the process of the tests, which is called crio for that
// time, as the installer sends the signal to no other.
type standin struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	dir string

	mu        sync.Mutex
	handlers  []string
	sandboxes []*runtimeapi.PodSandbox
	hangups   int
}

func startStandin(t *testing.T) *standin {
	t.Helper()
	c := &standin{dir: t.TempDir(), handlers: []string{"crun", "foreign"}}
	for name, text := range map[string]string{
		"etc/crio.conf.d/10-crun.conf":    "[crio.runtime.runtimes.crun]\nruntime_path = \"/usr/bin/crun\" # ours\nmonitor_path = \"/usr/bin/conmon\"\n",
		"etc/crio.conf.d/20-foreign.conf": "[crio.runtime.runtimes.foreign]\nruntime_path = \"/usr/bin/crun\"\nmonitor_path = \"/usr/bin/conmon\"\n",
	} {
		path := filepath.Join(c.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("/proc/self/comm", []byte("crio"), 0o644); err != nil {
		t.Skipf("this process cannot be called crio: %v", err)
	}
	l, err := net.Listen("unix", filepath.Join(c.dir, "crio.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, c)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGHUP)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	wg.Go(func() {
		for range signals {
			c.reload()
		}
	})
	t.Cleanup(func() {
		signal.Stop(signals)
		close(signals)
		server.Stop()
		wg.Wait()
		_ = os.WriteFile("/proc/self/comm", was, 0o644)
	})
	return c
}

func (c *standin) reload() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hangups++
	all := map[string]bool{}
	entries, _ := os.ReadDir(filepath.Join(c.dir, "etc/crio.conf.d"))
	for _, e := range entries {
		var f struct {
			CRIO struct {
				Runtime struct {
					Runtimes map[string]any `toml:"runtimes"`
				} `toml:"runtime"`
			} `toml:"crio"`
		}
		data, err := os.ReadFile(filepath.Join(c.dir, "etc/crio.conf.d", e.Name()))
		if err != nil || toml.Unmarshal(data, &f) != nil {
			return
		}
		for name := range f.CRIO.Runtime.Runtimes {
			all[name] = true
		}
	}
	c.handlers = slices.Sorted(maps.Keys(all))
}

func (c *standin) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "cri-o", RuntimeVersion: "1.37.0"}, nil
}

func (c *standin) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{{Type: runtimeapi.RuntimeReady, Status: true}}}}
	for _, h := range append([]string{""}, c.handlers...) {
		s.RuntimeHandlers = append(s.RuntimeHandlers, &runtimeapi.RuntimeHandler{Name: h})
	}
	return s, nil
}

func (c *standin) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &runtimeapi.ListPodSandboxResponse{Items: c.sandboxes}, nil
}

func (c *standin) serves(t *testing.T, want ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.handlers, want) {
		t.Fatalf("%v are served, want %v", c.handlers, want)
	}
}

func (c *standin) fairlead(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	all := append([]string{"install"}, args...)
	all = append(all, "--cri", "crio", "--distribution", "crio", "--cri-socket", filepath.Join(c.dir, "crio.sock"), "--cri-config", filepath.Join(c.dir, "etc/crio.conf"),
		"--binary-path", filepath.Join(c.dir, "usr"), "--journal", filepath.Join(c.dir, "journal"), "--restart", "sighup", "--restart-interval", "1ns", "--wait", "3s", "--os", "debian")
	cmd := exec.Command(filepath.Join(node.Bin, "fairlead"), all...)
	cmd.Env = append(os.Environ(), env...)
	return run(t, cmd)
}

func TestStandin(t *testing.T) {
	c := startStandin(t)
	before := tree(t, filepath.Join(c.dir, "etc"))
	o := c.fairlead(t, nil, "--payload", small(t, "test", "1").dir)
	if r := o.first(t); r.State != payload.Installed || !r.Restarted || !strings.HasPrefix(r.Runtime, "cri-o ") {
		t.Fatalf("%+v %s", r, o.stderr)
	}
	c.serves(t, "crun", "foreign", "test")
	if r := c.fairlead(t, nil, "--payload", small(t, "test", "1").dir).first(t); r.Restarted {
		t.Errorf("again: %+v", r)
	}
	c.mu.Lock()
	c.sandboxes = []*runtimeapi.PodSandbox{{Id: "1", RuntimeHandler: "test", Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n"}}}
	c.mu.Unlock()
	if r := c.fairlead(t, nil, "uninstall", "test").first(t); r.Reason != payload.InUse || r.State != payload.Refused {
		t.Errorf("%+v", r)
	}
	c.mu.Lock()
	c.sandboxes = nil
	c.mu.Unlock()
	for _, place := range []string{"install.half-written", "install.restarting", "install.verified"} {
		if o := c.fairlead(t, kill(place), "--payload", small(t, "test", "2-"+place).dir); o.code != -1 {
			t.Fatalf("%s: nobody was killed: %+v %s", place, o.results, o.stderr)
		}
		if r := c.fairlead(t, nil, "--payload", small(t, "test", "3-"+place).dir).first(t); r.State != payload.Installed {
			t.Fatalf("%s: %+v", place, r)
		}
		c.serves(t, "crun", "foreign", "test")
	}
	if r := c.fairlead(t, nil, "uninstall", "test").first(t); r.State != payload.Removed {
		t.Fatalf("%+v", r)
	}
	c.serves(t, "crun", "foreign")
	same(t, before, tree(t, filepath.Join(c.dir, "etc")))
	if exists(filepath.Join(c.dir, "usr")) || exists(filepath.Join(c.dir, "journal")) {
		t.Error("something is left")
	}
}

// A file that CRI-O would not start with is told before anything is written.
func TestStandinWithGarbage(t *testing.T) {
	c := startStandin(t)
	if err := os.WriteFile(filepath.Join(c.dir, "etc/crio.conf.d/.10-x.conf.swp"), []byte("[["), 0o644); err != nil {
		t.Fatal(err)
	}
	before := tree(t, filepath.Join(c.dir, "etc"))
	r := c.fairlead(t, nil, "--payload", small(t, "test", "1").dir).first(t)
	if r.State != payload.Refused || r.Reason != payload.UnsupportedNode || !strings.Contains(r.Message, ".swp") {
		t.Errorf("%+v", r)
	}
	same(t, before, tree(t, filepath.Join(c.dir, "etc")))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hangups > 0 {
		t.Error("it was told to read that")
	}
}
