package spec

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/capability"
	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/spec/host"
	"fairlead.run/internal/spec/origin"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// plainHost is a host that can everything, but for what a case takes away.
func plainHost() host.Host {
	h := host.Host{Unified: true, Swap: true, SysResource: true, Seccomp: true, Rlimits: map[string]uint64{"RLIMIT_NOFILE": 1000}}
	for _, c := range capability.ListKnown() {
		h.Capabilities = append(h.Capabilities, host.CapabilityName(c))
	}
	return h
}

const (
	testPasswd = "root:x:0:0::/root:\nweb:x:1000:2000::/:\n1234:x:77:78::/:\n"
	testGroup  = "root:x:0:\nweb:x:2000:\nextra:x:3000:web\nstaff:x:3001:root,web\nnum:x:55:\n"
)

// testCase is one request, as it changes the plain one.
type testCase struct {
	cfg    Config
	req    pod.BundleRequest
	record *pod.Record
	c      *pod.ContainerConfig
}

// plain is a request for a container that asks for next to nothing.
func plain(t *testing.T) *testCase {
	t.Helper()
	root := t.TempDir()
	must(t, os.Mkdir(filepath.Join(root, "etc"), 0o755))
	must(t, os.WriteFile(filepath.Join(root, "etc/passwd"), []byte(testPasswd), 0o644))
	must(t, os.WriteFile(filepath.Join(root, "etc/group"), []byte(testGroup), 0o644))
	state := t.TempDir()
	dir := filepath.Join(state, "pods/p")
	must(t, os.MkdirAll(filepath.Join(dir, "shm"), 0o755))
	for _, f := range []string{pod.FileHostname, pod.FileHosts, pod.FileResolvConf} {
		must(t, os.WriteFile(filepath.Join(dir, f), nil, 0o644))
	}
	c := &pod.Container{ID: "container1", Config: pod.ContainerConfig{
		Metadata: pod.ContainerMetadata{Name: "app"},
		Image:    pod.ImageSpec{Image: "example/app"},
		Process:  pod.Process{Command: []string{"/app"}},
	}}
	c.Config.Security.Namespaces.PID = pod.NamespaceContainer
	r := &pod.Record{ID: "pod1", Config: pod.Config{Hostname: "host-1"}, Sandbox: pod.Sandbox{
		Dir: dir, NetNS: "/ns/net", IPCNS: "/ns/ipc", UTSNS: "/ns/uts", Shm: filepath.Join(dir, "shm"), Cgroup: "/kubepods/pod1",
	}}
	r.Containers = []*pod.Container{c}
	return &testCase{
		cfg:    Config{StateDir: state, RootDir: t.TempDir(), CgroupDriver: CgroupFS, Monitor: "/bin/true", Host: plainHost()},
		record: r, c: &c.Config,
		req: pod.BundleRequest{Record: r, Container: c, Rootfs: root, Handler: pod.HandlerInfo{
			Name: "test", Features: pod.HandlerFeatures{RecursiveReadOnlyMounts: true, Seccomp: true, AppArmor: true, SELinux: true},
		}},
	}
}

func (tc *testCase) build(t *testing.T) (*build, error) {
	t.Helper()
	b, err := New(tc.cfg)
	must(t, err)
	w := b.newBuild(tc.req)
	return w, w.run(t.Context(), containerSteps)
}

// spec builds and must succeed.
func (tc *testCase) spec(t *testing.T) *build {
	t.Helper()
	w, err := tc.build(t)
	must(t, err)
	return w
}

// refused builds and must fail, with the kind and the words.
func (tc *testCase) refused(t *testing.T, kind error, words ...string) {
	t.Helper()
	_, err := tc.build(t)
	if !errors.Is(err, kind) {
		t.Fatalf("got %v, want %v", err, kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func same[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func mountAt(w *build, dest string) *specs.Mount {
	for i := range w.spec.Mounts {
		if w.spec.Mounts[i].Destination == dest {
			return &w.spec.Mounts[i]
		}
	}
	return nil
}

func ptrTo(n int64) *int64 { return &n }

func TestPlain(t *testing.T) {
	w := plain(t).spec(t)
	if w.spec.Version != "1.1.0" || w.spec.Root.Readonly || w.spec.Process.NoNewPrivileges || w.spec.Process.Terminal || w.spec.Hostname != "" {
		t.Errorf("%+v", w.spec)
	}
	if w.stopSignal != "SIGTERM" || len(w.warnings) > 0 || w.spec.Linux.Seccomp != nil || w.spec.Linux.MaskedPaths != nil {
		t.Errorf("stop signal %s, warnings %v, %v, %v", w.stopSignal, w.warnings, w.spec.Linux.Seccomp, w.spec.Linux.MaskedPaths)
	}
	tc := plain(t)
	tc.req.Handler.OCI = "1.0.2"
	tc.c.Security.ReadOnlyRootfs, tc.c.Security.NoNewPrivileges, tc.c.Process.TTY = true, true, true
	tc.c.Security.MaskedPaths, tc.c.Security.ReadOnlyPaths = []string{"/proc/kcore"}, []string{"/proc/sys"}
	w = tc.spec(t)
	if w.spec.Version != "1.0.2" || !w.spec.Root.Readonly || !w.spec.Process.NoNewPrivileges || !w.spec.Process.Terminal {
		t.Errorf("%+v", w.spec)
	}
	same(t, "masked", w.spec.Linux.MaskedPaths, []string{"/proc/kcore"})
	same(t, "read-only", w.spec.Linux.ReadonlyPaths, []string{"/proc/sys"})
	if m := mountAt(w, "/etc/hosts"); m == nil || !slices.Contains(m.Options, "ro") {
		t.Errorf("/etc/hosts on a read-only root is %+v", m)
	}
}

func TestRefusedRequests(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*testCase)
		kind   error
		words  string
	}{
		"privileged in a pod that is not": {func(tc *testCase) { tc.c.Security.Privileged = true }, errdefs.ErrInvalidArgument, "linux.security_context.privileged"},
		"masked path":                     {func(tc *testCase) { tc.c.Security.MaskedPaths = []string{"/a", "b"} }, errdefs.ErrInvalidArgument, "masked_paths[1]"},
		"read-only path":                  {func(tc *testCase) { tc.c.Security.ReadOnlyPaths = []string{"b"} }, errdefs.ErrInvalidArgument, "readonly_paths[0]"},
		"relative rootfs":                 {func(tc *testCase) { tc.req.Rootfs = "rootfs" }, errdefs.ErrInternal, "rootfs"},
		"systemd's parent":                {func(tc *testCase) { tc.record.Sandbox.Cgroup = "/a.slice/b.slice" }, errdefs.ErrInvalidArgument, "cgroup_parent"},
		"cgroupfs's parent":               {func(tc *testCase) { tc.cfg.CgroupDriver = CgroupSystemd }, errdefs.ErrInvalidArgument, "cgroup_parent"},
	} {
		t.Run(name, func(t *testing.T) {
			tc := plain(t)
			tt.change(tc)
			tc.refused(t, tt.kind, tt.words)
		})
	}
	tc := plain(t) // the node's user namespace is what it gets anyway
	tc.c.Security.Namespaces.User = &pod.UserNamespace{Mode: pod.NamespaceNode}
	tc.spec(t)
}

func TestCgroupsPath(t *testing.T) {
	for _, tt := range []struct {
		driver     CgroupDriver
		parent, is string
	}{
		{CgroupFS, "/kubepods/pod1", "/kubepods/pod1/c"},
		{CgroupFS, "kubepods/../x", "/x/c"},
		{CgroupSystemd, "/kubepods.slice/kubepods-pod1.slice", "kubepods-pod1.slice:fairlead:c"},
		{CgroupSystemd, "kubepods-pod1.slice", "kubepods-pod1.slice:fairlead:c"},
	} {
		if got, err := CgroupsPath(tt.driver, tt.parent, "c"); err != nil || got != tt.is {
			t.Errorf("%s %s: %s, %v", tt.driver, tt.parent, got, err)
		}
	}
}

// ownAnnotations is how many a container has that nobody asked for.
const ownAnnotations = 11

func TestAnnotations(t *testing.T) {
	tc := plain(t)
	tc.record.Config.Annotations = map[string]string{"io.kata.x": "1", "a.example/one": "2", "other": "3", origin.Type: "sandbox"}
	tc.c.Annotations = map[string]string{"c.example/x": "4", "io.kata.y": "5", origin.Sandbox: "forged"}
	w := tc.spec(t)
	if len(w.spec.Annotations) != ownAnnotations || w.spec.Annotations[origin.Type] != "container" || w.spec.Annotations[origin.Sandbox] != "pod1" {
		t.Errorf("without a list: %v", w.spec.Annotations)
	}
	tc.req.Handler.PodAnnotations = []string{"io.kata.*", "a.example/one", "*.none", origin.Type}
	tc.req.Handler.ContainerAnnotations = []string{"c.example/*", "io.kata", origin.Sandbox}
	w = tc.spec(t)
	for k, v := range map[string]string{"io.kata.x": "1", "a.example/one": "2", "c.example/x": "4", origin.Type: "container", origin.Sandbox: "pod1", origin.Container: "app"} {
		if w.spec.Annotations[k] != v {
			t.Errorf("%s is %q, want %q", k, w.spec.Annotations[k], v)
		}
	}
	if len(w.spec.Annotations) != ownAnnotations+3 {
		t.Errorf("too many: %v", w.spec.Annotations)
	}
}

func TestConfig(t *testing.T) {
	good := plain(t).cfg
	for name, change := range map[string]func(*Config){
		"state":          func(c *Config) { c.StateDir = "x" },
		"root":           func(c *Config) { c.RootDir = "" },
		"monitor":        func(c *Config) { c.Monitor = "fairlead-monitor" },
		"driver":         func(c *Config) { c.CgroupDriver = "" },
		"unknown rlimit": func(c *Config) { c.DefaultRlimits = map[string]Rlimit{"nofiles": {}} },
		"soft over hard": func(c *Config) { c.DefaultRlimits = map[string]Rlimit{"nofile": {Soft: 2, Hard: 1}} },
		"twice":          func(c *Config) { c.DefaultRlimits = map[string]Rlimit{"nofile": {}, "RLIMIT_NOFILE": {}} },
	} {
		c := good
		change(&c)
		if _, err := New(c); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRlimits(t *testing.T) {
	tc := plain(t)
	tc.cfg.DefaultRlimits = map[string]Rlimit{"nofile": {Soft: 2000, Hard: 3000}, "RLIMIT_CORE": {Soft: 0, Hard: Unlimited}}
	want := []specs.POSIXRlimit{{Type: "RLIMIT_CORE", Soft: 0, Hard: Unlimited}, {Type: "RLIMIT_NOFILE", Soft: 2000, Hard: 3000}}
	same(t, "rlimits", tc.spec(t).spec.Process.Rlimits, want)
	// Without the right to raise them, they are what this process has.
	tc.cfg.Host.SysResource = false
	want[1] = specs.POSIXRlimit{Type: "RLIMIT_NOFILE", Soft: 1000, Hard: 1000}
	same(t, "clamped rlimits", tc.spec(t).spec.Process.Rlimits, want)
	b, err := New(tc.cfg)
	must(t, err)
	if len(b.Warnings()) != 1 || !strings.Contains(b.Warnings()[0], "RLIMIT_NOFILE") {
		t.Errorf("warnings %v", b.Warnings())
	}
}
