package installer

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/inroot"
)

// node is a node's root directory with a containerd that is a server in this process:
// it reads its configuration as 1.6 or 2.4 do, and is down if that is not to its taste.
type node struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	*testing.T
	root  string
	major int
	setup

	mu       sync.Mutex
	server   *grpc.Server
	loaded   map[string]map[string]any
	restarts int
	// sandboxes are those of pods.
	sandboxes []*runtimeapi.PodSandbox
	// onList is called before it tells of them; an error is told instead.
	onList func() error
	// containers are those in the sandboxes, and onContainers is called before it tells of
	// them.
	containers   []*runtimeapi.Container
	onContainers func()
	// fatal is a handler with which it does not start.
	fatal string
	// onRestart is called before it reads its configuration.
	onRestart func()
}

// setup is how a distribution starts its containerd.
type setup struct {
	distribution, socket, main string
	// generate makes the main file, and what it imports, before containerd starts; it may
	// be nil.
	generate func(n *node)
}

var byItself = setup{distribution: "containerd", socket: "run/containerd/containerd.sock", main: "/etc/containerd/config.toml"}

// releases runs a test with either release of containerd.
func releases(t *testing.T, f func(t *testing.T, n *node)) {
	t.Helper()
	for name, major := range map[string]int{"1.6": 1, "2.4": 2} {
		t.Run(name, func(t *testing.T) { f(t, newNode(t, major)) })
	}
}

func newNode(t *testing.T, major int) *node {
	t.Helper()
	return newNodeWith(t, major, byItself, map[string]string{byItself.main: (&node{major: major}).adminConfig()})
}

// newNodeWith is a node of a distribution, with some files.
func newNodeWith(t *testing.T, major int, s setup, files map[string]string) *node {
	t.Helper()
	// A socket's path has to be short.
	root, err := os.MkdirTemp("", "installer")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{T: t, root: root, major: major, setup: s}
	t.Cleanup(func() {
		n.stop()
		_ = os.RemoveAll(root)
	})
	n.write("etc/os-release", "ID=debian\n")
	n.write("etc/systemd/system/containerd.service", "[Service]\nExecStart=/usr/bin/containerd\n")
	for path, text := range files {
		n.write(path, text)
	}
	for _, dir := range []string{filepath.Dir(s.socket), "usr/bin", "var/lib", "proc"} {
		if err := os.MkdirAll(n.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.restart()
	control, err := net.Listen("unix", n.path("control"))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { n.serveRestarts(control) })
	t.Cleanup(func() {
		_ = control.Close()
		wg.Wait()
	})
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.root, name) }

func (n *node) write(name, text string) {
	n.Helper()
	if err := os.MkdirAll(filepath.Dir(n.path(name)), 0o755); err != nil {
		n.Fatal(err)
	}
	if err := os.WriteFile(n.path(name), []byte(text), 0o644); err != nil {
		n.Fatal(err)
	}
}

func (n *node) read(name string) string {
	n.Helper()
	data, err := os.ReadFile(n.path(name))
	if err != nil {
		n.Fatal(err)
	}
	return string(data)
}

func (n *node) plugin() string {
	if n.major == 1 {
		return `plugins."io.containerd.grpc.v1.cri"`
	}
	return `plugins."io.containerd.cri.v1.runtime"`
}

func (n *node) table(name string) string {
	return fmt.Sprintf("\n[%s.containerd.runtimes.%s]\n  runtime_type = \"io.containerd.runc.v2\" # of an admin\n", n.plugin(), name)
}

func (n *node) adminConfig() string {
	return fmt.Sprintf("# of this machine\nversion = %d\n", n.major+1) + n.table("runc") + n.table("foreign") + "# the end"
}

// restart has the daemon read its configuration anew.
func (n *node) restart() {
	n.stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.restarts++
	if n.onRestart != nil {
		n.onRestart()
	}
	if n.generate != nil {
		n.generate(n)
	}
	loaded, err := n.load()
	if err != nil {
		return // it is down
	}
	if _, ok := loaded[n.fatal]; ok {
		return
	}
	n.loaded = loaded
	err = os.MkdirAll(filepath.Dir(n.path(n.socket)), 0o755) // which goes with the boot
	l, failed := net.Listen("unix", n.path(n.socket))
	if err := errors.Join(err, failed); err != nil {
		n.Errorf("start containerd: %v", err)
		return
	}
	n.server = grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(n.server, n)
	go func(s *grpc.Server) { _ = s.Serve(l) }(n.server)
}

func (n *node) stop() {
	n.mu.Lock()
	s := n.server
	n.server = nil
	n.mu.Unlock()
	if s != nil {
		s.Stop()
	}
	_ = os.Remove(n.path(n.socket))
}

func (n *node) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.restarts
}

// config is what is read of a file.
type config struct {
	Version int
	Imports []string
	Plugins map[string]struct {
		Containerd struct {
			Runtimes    map[string]map[string]any
			DefaultName string         `toml:"default_runtime_name"`
			Default     map[string]any `toml:"default_runtime"`
			Untrusted   map[string]any `toml:"untrusted_workload_runtime"`
		}
	}
}

// load reads the configuration: from 2.0 on an import adds to it, before the last
// table of the plugin counts alone.
func (n *node) load() (map[string]map[string]any, error) {
	all := map[string]map[string]any{}
	named, byDefault := false, "runc"
	old := map[string]map[string]any{}
	pending := []string{n.main}
	for len(pending) > 0 {
		path := pending[0]
		pending = pending[1:]
		data, err := os.ReadFile(inroot.Join(n.root, path))
		if err != nil {
			return nil, err
		}
		var c config
		if err := toml.Unmarshal(data, &c); err != nil {
			return nil, err
		}
		key := map[int]string{2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}[c.Version]
		if p, ok := c.Plugins[key]; ok {
			byDefault = cmp.Or(p.Containerd.DefaultName, byDefault)
			old = map[string]map[string]any{"default": p.Containerd.Default, "untrusted": p.Containerd.Untrusted}
		}
		if runtimes := c.Plugins[key].Containerd.Runtimes; runtimes != nil {
			if n.major == 1 {
				clear(all)
			}
			maps.Copy(all, runtimes)
			named = true
		}
		for _, p := range c.Imports {
			if !strings.Contains(p, "*") {
				pending = append(pending, p)
				continue
			}
			found, err := filepath.Glob(filepath.Join(inroot.Join(n.root, filepath.Dir(p)), filepath.Base(p)))
			if err != nil {
				return nil, err
			}
			for _, f := range found {
				pending = append(pending, filepath.Join(filepath.Dir(p), filepath.Base(f)))
			}
		}
	}
	if _, ok := all["runc"]; !ok && (!named || n.major > 1) {
		all["runc"] = map[string]any{"runtime_type": "io.containerd.runc.v2"}
	}
	for name, table := range old {
		if n.major > 1 || cmp.Or(table["runtime_type"], any("")) == "" {
			continue
		}
		if _, twice := all[name]; twice && name == "untrusted" {
			return nil, fmt.Errorf("%s is there twice", name)
		}
		if all[name] = table; name == "default" {
			byDefault = name
		}
	}
	if _, ok := all[byDefault]; !ok {
		return nil, fmt.Errorf("%s is the default, and not there", byDefault)
	}
	return all, nil
}

func (n *node) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	v := map[int]string{1: "1.6.20", 2: "v2.4.2"}[n.major]
	return &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: v}, nil
}

func (n *node) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{{Type: runtimeapi.RuntimeReady, Status: true}}}}
	runtimes := map[string]any{}
	for name, r := range n.loaded {
		runtimes[name] = map[string]any{"runtimeType": r["runtime_type"], "options": r["options"]}
		if n.major > 1 {
			s.RuntimeHandlers = append(s.RuntimeHandlers, &runtimeapi.RuntimeHandler{Name: name})
		}
	}
	data, err := json.Marshal(map[string]any{"containerd": map[string]any{"runtimes": runtimes}})
	s.Info = map[string]string{"config": string(data)}
	return s, err
}

func (n *node) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.onList != nil {
		if err := n.onList(); err != nil {
			return nil, err
		}
	}
	return &runtimeapi.ListPodSandboxResponse{Items: n.sandboxes}, nil
}

func (n *node) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.onContainers != nil {
		n.onContainers()
	}
	return &runtimeapi.ListContainersResponse{Containers: n.containers}, nil
}

// serves fails unless exactly these handlers are served.
func (n *node) serves(want ...string) {
	n.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	slices.Sort(want)
	got := slices.Sorted(maps.Keys(n.loaded))
	if n.server == nil {
		got = []string{"it is down"}
	}
	if !slices.Equal(got, want) {
		n.Fatalf("%v are served, want %v", got, want)
	}
}

// shim is what a handler is served with.
func (n *node) shim(handler string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, _ := n.loaded[handler]["runtime_type"].(string)
	return s
}

// tree is everything below a folder of the node.
func (n *node) tree(dir string) map[string]string {
	n.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(n.path(dir), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		text := info.Mode().String()
		if err == nil && info.Mode().IsRegular() {
			var data []byte
			data, err = os.ReadFile(path)
			text += "\n" + string(data)
		}
		all[strings.TrimPrefix(path, n.root)] = text
		return err
	})
	if err != nil {
		n.Fatal(err)
	}
	return all
}

func (n *node) same(before map[string]string, dir string) {
	n.Helper()
	after := n.tree(dir)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if after[name] != before[name] {
			n.Errorf("%s was\n%s\nand is\n%s", name, before[name], after[name])
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			n.Errorf("%s is new", name)
		}
	}
}

// bare fails if something of the installer is left.
func (n *node) bare() {
	n.Helper()
	for _, dir := range []string{"usr", "var"} {
		if left := slices.Sorted(maps.Keys(n.tree(dir))); len(left) > 2 {
			n.Errorf("of %s is left: %v", dir, left)
		}
	}
}

// restarter restarts the daemon of a node, in this process or by its socket.
type restarter func(ctx context.Context) error

func (r restarter) Restart(ctx context.Context) error { return r(ctx) }
func (restarter) String() string                      { return "restart by the test" }

// installer is one for a node.
func newInstaller(root string, wait time.Duration) (*Installer, error) {
	log := slog.New(slog.DiscardHandler)
	if os.Getenv(childEnv) != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	distribution, said := os.LookupEnv(distributionEnv)
	if !said {
		distribution = "containerd"
	}
	// A kubelet of this machine is not that of the node.
	return New(Options{Root: root, Distribution: distribution, Restart: "none", Wait: wait, Interval: 1, proc: filepath.Join(root, "proc")}, log)
}

func (n *node) installer() *Installer {
	n.Helper()
	i, err := newInstaller(n.root, time.Minute)
	if err != nil {
		n.Fatal(err)
	}
	i.restarter = restarter(func(context.Context) error {
		n.restart()
		return nil
	})
	return i
}

// install has to succeed.
func (n *node) install(dirs ...string) []payload.InstallResult {
	n.Helper()
	results := n.installer().Install(n.Context(), sources(dirs))
	for _, r := range results {
		if r.State != payload.Installed {
			n.Fatalf("%+v", r)
		}
	}
	return results
}

func (n *node) uninstall(kinds ...string) {
	n.Helper()
	for _, k := range kinds {
		if r := n.installer().Remove(n.Context(), k); r.State != payload.Removed {
			n.Fatalf("%+v", r)
		}
	}
}

func sources(dirs []string) []Source {
	var all []Source
	for _, d := range dirs {
		all = append(all, Source{Dir: d})
	}
	return all
}

// bundle makes a payload with one handler of its type's name.
func bundle(t *testing.T, kind, version, content string) string {
	t.Helper()
	dir := t.TempDir()
	sum := sha256.Sum256([]byte(content))
	p := payload.RuntimePayload{
		APIVersion: payload.APIVersion, Kind: payload.KindPayload, Type: kind, Version: version, OS: "linux", Architectures: []string{goruntime.GOARCH},
		Files:   []payload.File{{Path: "shim", Mode: "0755", Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}},
		Configs: []payload.Config{{Path: "shim.toml", Content: "program = \"" + payload.PayloadDir + "/shim\"\n"}},
		Handlers: []payload.Handler{{Name: kind, Containerd: &payload.ContainerdHandler{
			RuntimeType: "io.containerd." + kind + ".v1", RuntimePath: "shim",
			Options: &payload.ContainerdOptions{ConfigPath: payload.ConfigDir + "/shim.toml"},
		}}},
	}
	data, err := json.Marshal(p)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, payload.ManifestName), data, 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "shim"), []byte(content), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// childEnv has this program install as another process, which may be killed: the
// node's root, and then the payloads.
const childEnv = "INSTALLER_TEST_CHILD"

// distributionEnv names the distribution that an installer is told, also in that process;
// it is told none if it is empty, and containerd if it is not set.
const distributionEnv = "INSTALLER_TEST_DISTRIBUTION"

func TestMain(m *testing.M) {
	if root := os.Getenv(crioEnv); root != "" {
		os.Exit(serveCRIO(root))
	}
	if order := os.Getenv(childEnv); order != "" {
		os.Exit(child(filepath.SplitList(order)))
	}
	os.Exit(m.Run())
}

func child(order []string) int {
	i, err := newInstaller(order[0], 300*time.Millisecond)
	if err == nil {
		err = failpoint.Enable(os.Getenv(failpoint.Env))
	}
	if err != nil {
		fmt.Println(err)
		return 2
	}
	i.restarter = restarter(func(context.Context) error {
		c, err := net.Dial("unix", filepath.Join(order[0], "control"))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		if _, err := io.WriteString(c, "restart\n"); err != nil {
			return err
		}
		_, err = bufio.NewReader(c).ReadString('\n')
		return err
	})
	fmt.Printf("%+v\n", i.Install(context.Background(), sources(order[1:])))
	return 0
}

// serveRestarts restarts the daemon for children.
func (n *node) serveRestarts(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if _, err := bufio.NewReader(c).ReadString('\n'); err == nil {
			n.restart()
			_, _ = io.WriteString(c, "done\n")
		}
		_ = c.Close()
	}
}

// killed runs an installer that is killed at a place, and says whether it came there.
func (n *node) killed(place string, dirs ...string) bool {
	n.Helper()
	exe, err := os.Executable()
	if err != nil {
		n.Fatal(err)
	}
	cmd := exec.CommandContext(n.Context(), exe)
	order := append([]string{n.root}, dirs...)
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(order, string(filepath.ListSeparator)), failpoint.Env+"="+place+"=kill")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() == 2 {
		n.Fatalf("%v: %s", err, out)
	}
	return cmd.ProcessState.ExitCode() == -1
}

// places are those at which an installer can be killed.
func places() []string {
	return slices.DeleteFunc(failpoint.Names(), func(p string) bool { return !strings.HasPrefix(p, "install.") })
}
