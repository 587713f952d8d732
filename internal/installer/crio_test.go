package installer

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/cri/critest"
	"fairlead.run/internal/installer/crio"
)

// crioEnv has this program be a CRI-O: it names the node's root, and the command line has
// its file and its folder.
const crioEnv = "INSTALLER_TEST_CRIO"

// jailEnv has it see nothing but the node, as a process of the node does for a container.
const jailEnv = "INSTALLER_TEST_JAIL"

// serveCRIO serves the handlers that its configuration has as it starts.
func serveCRIO(root string) int {
	if os.Getenv(jailEnv) != "" {
		if err := syscall.Chroot(root); err != nil {
			fmt.Println(err)
			return 1
		}
		root = "/"
	}
	c, err := crio.Load(crio.Layout{Root: root, Main: os.Args[2], DropIns: os.Args[4]})
	var l net.Listener
	if err == nil {
		l, err = net.Listen("unix", filepath.Join(root, "run/crio/crio.sock"))
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	s := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(s, &critest.Runtime{Name: "cri-o", Release: "1.36.3", Handlers: append(slices.Sorted(maps.Keys(c.Handlers())), "crun")})
	if err := s.Serve(l); err != nil {
		return 1
	}
	return 0
}

// crioNode is a node with such a CRI-O.
type crioNode struct {
	*node
	file, folder string
	cmd          *exec.Cmd
}

func (n *crioNode) start() {
	n.Helper()
	exe, err := os.Executable()
	if err != nil {
		n.Fatal(err)
	}
	n.cmd = &exec.Cmd{Path: exe, Args: []string{"/usr/bin/crio", "--config", n.file, "--config-dir", n.folder}, Env: append(os.Environ(), crioEnv+"="+n.root), Stdout: os.Stdout}
	if err := n.cmd.Start(); err != nil {
		n.Fatal(err)
	}
	until := time.Now().Add(time.Minute)
	for {
		if c, err := net.Dial("unix", n.path("run/crio/crio.sock")); err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(until) {
			n.Fatal("CRI-O does not listen")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (n *crioNode) end() {
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
	_ = os.Remove(n.path("run/crio/crio.sock"))
}

// Handlers go to the folder that CRI-O is started with: in /etc/crio nobody would read them.
func TestCRIOIsWrittenWhereItReads(t *testing.T) {
	n := &crioNode{node: newNode(t, 2), file: "/opt/crio.conf", folder: "/opt/crio.d"}
	n.write("run/crio/x", "")
	n.write(n.file, "[crio.runtime.runtimes.main]\nruntime_path = \"/usr/bin/main\"\n")
	n.write(n.folder+"/10-admin.conf", "[crio.runtime.runtimes.foreign]\nruntime_path = \"/usr/bin/foreign\"\n")
	n.start()
	t.Cleanup(n.end)
	before, usual := n.tree("opt"), n.tree("etc")
	if r := n.installer().Install(t.Context(), sources([]string{n.bundle("test")}))[0]; r.State != payload.Installed {
		t.Fatalf("%+v", r)
	}
	if text := n.read(n.folder + "/99-fairlead-test.conf"); !strings.Contains(text, "runtimes.test]") {
		t.Errorf("%s", text)
	}
	if text := n.read("var/lib/fairlead-installer/node.json"); !strings.Contains(text, `"config": "`+n.file+`"`) {
		t.Errorf("%s", text)
	}
	// A handler that somebody has taken out of its file is missed there, too.
	const admin = "/10-admin.conf"
	text := n.read(n.folder + admin)
	n.write(n.folder+admin, "")
	if r := n.installer().Install(t.Context(), sources([]string{n.bundle("other")}))[0]; r.Reason != payload.Conflict || !strings.Contains(r.Message, "foreign") {
		t.Errorf("%+v", r)
	}
	n.write(n.folder+admin, text)
	if r := n.installer().Remove(t.Context(), "test"); r.State != payload.Removed {
		t.Errorf("%+v", r)
	}
	n.same(before, "opt")
	n.same(usual, "etc")
	n.bare()
}

// An installer in a container that sees nothing of the node but CRI-O's socket changes nothing.
func TestCRIOReadsWhatIsNotMounted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("chroot needs root")
	}
	t.Setenv(jailEnv, "yes")
	n := &crioNode{node: newNode(t, 2), file: "/etc/crio/crio.conf", folder: "/etc/crio/crio.conf.d"}
	n.write("run/crio/x", "")
	n.write("etc/crio/crio.conf.d/10-admin.conf", "")
	n.start()
	t.Cleanup(n.end)
	seen := &crioNode{node: &node{T: t, root: t.TempDir()}}
	seen.write("run/crio/x", "")
	seen.write("etc/os-release", "ID=debian\n")
	seen.write("var/lib/x", "")
	if err := os.Link(n.path("run/crio/crio.sock"), seen.path("run/crio/crio.sock")); err != nil {
		t.Fatal(err)
	}
	before := seen.tree("")
	r := seen.installer().Install(t.Context(), sources([]string{n.bundle("test")}))[0]
	if r.State != payload.Refused || r.Reason != payload.UnsupportedNode || !strings.Contains(r.Message, "/etc/crio/crio.conf.d/99-fairlead-test.conf leads to a folder of the node that is not mounted") {
		t.Errorf("%+v", r)
	}
	seen.same(before, "")
}

func (n *crioNode) installer() *Installer {
	n.Helper()
	i, err := New(Options{Root: n.root, Distribution: "crio", Restart: "none", Wait: time.Minute, Interval: 1}, slog.New(slog.DiscardHandler))
	if err != nil {
		n.Fatal(err)
	}
	i.restarter = restarter(func(context.Context) error {
		n.end()
		n.start()
		return nil
	})
	return i
}

// bundle makes a payload with one handler of its type's name.
func (n *crioNode) bundle(kind string) string {
	n.Helper()
	dir := bundle(n.T, kind, "1", "1")
	path := filepath.Join(dir, payload.ManifestName)
	data, err := os.ReadFile(path)
	if err != nil {
		n.Fatal(err)
	}
	var p payload.RuntimePayload
	if err := json.Unmarshal(data, &p); err != nil {
		n.Fatal(err)
	}
	p.Handlers = []payload.Handler{{Name: kind, CRIO: &payload.CRIOHandler{RuntimePath: "shim", RuntimeType: "oci"}}}
	if data, err = json.Marshal(p); err == nil {
		err = os.WriteFile(path, data, 0o644)
	}
	if err != nil {
		n.Fatal(err)
	}
	return dir
}

// A CRI-O that would not start again is left as it is.
func TestUninstallUnderABrokenFileOfCRIO(t *testing.T) {
	n := &crioNode{node: newNode(t, 2), file: "/opt/crio.conf", folder: "/opt/crio.d"}
	n.write("run/crio/x", "")
	n.write(n.folder+"/50-admin.conf", "")
	n.start()
	t.Cleanup(n.end)
	if r := n.installer().Install(t.Context(), sources([]string{n.bundle("test")}))[0]; r.State != payload.Installed {
		t.Fatalf("%+v", r)
	}
	n.write(n.folder+"/50-admin.conf", "[[[")
	before := n.tree("opt")
	if r := n.installer().Uninstall(t.Context(), "test"); r.State != payload.Refused || r.Restarted || !strings.Contains(r.Message, "50-admin.conf") {
		t.Errorf("%+v", r)
	}
	n.same(before, "opt")
	n.write(n.folder+"/50-admin.conf", "")
	if r := n.installer().Uninstall(t.Context(), "test"); r.State != payload.Removed {
		t.Errorf("%+v", r)
	}
}

// CRI-O is started with another folder. In the one before nothing is left.
func TestCRIOReadsAnotherFolder(t *testing.T) {
	n := &crioNode{node: newNode(t, 2), file: "/opt/crio.conf", folder: "/opt/crio.d"}
	n.write("run/crio/x", "")
	n.write("opt/crio.d/10-admin.conf", "")
	n.write("opt/other/10-admin.conf", "")
	before := n.tree("opt")
	n.start()
	t.Cleanup(func() { n.end() })
	for range 2 {
		if r := n.installer().Install(t.Context(), sources([]string{n.bundle("test")}))[0]; r.State != payload.Installed {
			t.Fatalf("%+v", r)
		}
		if got := n.tree(n.folder); len(got) != 3 {
			t.Errorf("%q", got)
		}
		n.end()
		n.folder = "/opt/other" // which need not end in .d
		n.start()
	}
	if got := n.tree("opt/crio.d"); len(got) != 2 {
		t.Errorf("%q", got)
	}
	// What one that was killed was writing is read by CRI-O, and is nobody's handler.
	n.write(n.folder+"/.fairlead-tmp-1", n.read(n.folder+"/99-fairlead-test.conf"))
	if r := n.installer().Install(t.Context(), sources([]string{n.bundle("test")}))[0]; r.State != payload.Installed {
		t.Errorf("%+v", r)
	}
	if r := n.installer().Uninstall(t.Context(), "test"); r.State != payload.Removed {
		t.Errorf("%+v", r)
	}
	n.same(before, "opt")
}
