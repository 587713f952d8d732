package installer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/cri"
	"fairlead.run/internal/installer/crio"
	"fairlead.run/internal/installer/restart"
)

// An admin has taken a handler out and not restarted yet: nothing is done over that.
func TestPendingEditIsNotPutInForce(t *testing.T) {
	releases(t, func(t *testing.T, n *node) {
		n.install(bundle(t, "old", "1", "1"))
		const file = "etc/containerd/config.toml"
		text := strings.Replace(n.read(file), n.table("foreign"), "# soon\n", 1)
		n.write(file, text)
		before, restarts := n.tree("etc"), n.count()
		r := n.installer().Install(t.Context(), sources([]string{bundle(t, "test", "1", "1")}))[0]
		if r.State != payload.Refused || r.Reason != payload.Conflict || !strings.Contains(r.Message, "foreign") {
			t.Fatalf("%+v", r)
		}
		if r := n.installer().Uninstall(t.Context(), "old"); r.State != payload.Refused || r.Reason != payload.Conflict {
			t.Fatalf("%+v", r)
		}
		n.same(before, "etc")
		if n.count() != restarts {
			t.Error("it was restarted")
		}
		n.restart() // by the admin
		n.install(bundle(t, "test", "1", "1"))
		n.serves("runc", "old", "test")
	})
}

// An edit that comes between the look and the restart takes a handler away. The
// installer's own is undone, the edit stays, and the next attempt is not in its way.
func TestEditUnderAChangeNeitherWedgesNorIsLost(t *testing.T) {
	releases(t, func(t *testing.T, n *node) {
		const file = "etc/containerd/config.toml"
		edited := false
		n.onRestart = func() {
			if !edited {
				edited = true
				n.write(file, strings.Replace(n.read(file), n.table("foreign"), "# an admin was here\n", 1))
			}
		}
		i := n.installer()
		i.options.Wait = time.Second
		r := i.Install(t.Context(), sources([]string{bundle(t, "test", "1", "1")}))[0]
		if r.State != payload.Failed || !strings.Contains(r.Message, "foreign") {
			t.Fatalf("%+v", r)
		}
		n.serves("runc")
		if text := n.read(file); !strings.Contains(text, "# an admin was here") || strings.Contains(text, "fairlead") {
			t.Fatalf("it is now\n%s", text)
		}
		n.install(bundle(t, "test", "2", "2"))
		n.serves("runc", "test")
	})
}

// The daemon does not start with an admin's edit and the change. What is known of it
// from before is enough to take only the change out.
func TestEditWhileTheDaemonIsDown(t *testing.T) {
	releases(t, func(t *testing.T, n *node) {
		const file = "etc/containerd/config.toml"
		before := n.read(file)
		if !n.killed("install.restarting", bundle(t, "test", "1", "1")) {
			t.Fatal("nobody was killed")
		}
		n.write(file, n.read(file)+"\n# a late word\n")
		n.fatal = "test"
		n.restart()
		n.install(bundle(t, "other", "1", "1"))
		n.serves("runc", "foreign", "other")
		n.uninstall("other")
		text := n.read(file)
		if !strings.HasPrefix(text, before) || !strings.HasSuffix(text, "\n# a late word\n") || strings.Contains(text, "fairlead") {
			t.Fatalf("it is now\n%s", text)
		}
	})
}

// A configuration that is an absolute link of the node is written through it, below
// the node's root.
func TestLinksOfTheNode(t *testing.T) {
	releases(t, func(t *testing.T, n *node) {
		n.write("opt/containerd/real.toml", n.adminConfig())
		for _, c := range [][2]string{{"/opt/containerd/real.toml", "etc/containerd/config.toml"}, {"/opt/bin", "usr/bin"}} {
			if err := os.RemoveAll(n.path(c[1])); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(c[0], n.path(c[1])); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Mkdir(n.path("opt/bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		etc, opt := n.tree("etc"), n.tree("opt")
		n.install(bundle(t, "test", "1", "1"))
		n.serves("runc", "foreign", "test")
		if to, err := os.Readlink(n.path("etc/containerd/config.toml")); err != nil || to != "/opt/containerd/real.toml" {
			t.Errorf("the link is %q: %v", to, err)
		}
		if found, _ := filepath.Glob(n.path("opt/bin/test/1-*/shim")); len(found) != 1 {
			t.Errorf("the shim is at %v", found)
		}
		n.uninstall("test")
		n.serves("runc", "foreign")
		n.same(etc, "etc")
		n.same(opt, "opt")
	})
}

// The same version with other content stands beside the first, and a rollback keeps
// that.
func TestSameVersionOtherContent(t *testing.T) {
	n := newNode(t, 2)
	first := bundle(t, "test", "1", "one")
	n.install(first)
	shim := n.shim("test")
	bad := bundle(t, "test", "1", "two")
	withCheck(t, bad)
	if r := n.installer().Install(t.Context(), sources([]string{bad}))[0]; r.State != payload.RolledBack {
		t.Fatalf("%+v", r)
	}
	if n.shim("test") != shim || n.read(shim) != "one" {
		t.Fatalf("it is served from %s", n.shim("test"))
	}
	n.install(bundle(t, "test", "1", "three"))
	if n.shim("test") == shim || n.read(n.shim("test")) != "three" {
		t.Fatalf("it is served from %s", n.shim("test"))
	}
}

// A CRI-O that hangs takes no signal.
func TestReviver(t *testing.T) {
	n := newNode(t, 2)
	n.write("etc/systemd/system/crio.service", "")
	for method, want := range map[string]string{"auto": "crio.service", "systemd": "crio.service", "none": "no restart", "sighup": "!SIGHUP"} {
		i, err := New(Options{Root: n.root, Distribution: "crio", Restart: method}, n.installer().log)
		if err != nil {
			t.Fatal(err)
		}
		r, err := i.Reviver()
		if refused, ok := strings.CutPrefix(want, "!"); ok {
			if err == nil || !strings.Contains(err.Error(), refused) {
				t.Errorf("%s: %v %v", method, r, err)
			}
			continue
		}
		if err != nil || !strings.Contains(r.String(), want) {
			t.Errorf("%s: %v %v", method, r, err)
		}
		if _, ok := r.(restart.Hangup); ok {
			t.Errorf("%s: it is sent a signal", method)
		}
	}
}

// A hundred cycles leave nothing.
func TestHundredCycles(t *testing.T) {
	releases(t, func(t *testing.T, n *node) {
		before, etc := n.tree(""), n.tree("etc")
		dir := bundle(t, "test", "1", "1")
		for range 100 {
			n.install(dir)
			n.uninstall("test")
		}
		n.serves("runc", "foreign")
		after := n.tree("")
		for _, m := range []map[string]string{before, after} {
			delete(m, "/run/containerd/containerd.sock")
		}
		if len(after) != len(before) {
			t.Errorf("%d files are left of %d", len(after), len(before))
		}
		n.same(etc, "etc")
		n.bare()
	})
}

// A CRI-O that keeps what it had has not taken an upgrade over, though it serves a
// handler of that name.
func TestCRIOServesWhatWasWritten(t *testing.T) {
	one := &job{crio: []crio.Handler{{Name: "kata", CRIOHandler: payload.CRIOHandler{RuntimeType: "vm", RuntimePath: "/2/shim", RuntimeConfigPath: "/2/c"}}}}
	settled := &job{crio: []crio.Handler{{Name: "kata", CRIOHandler: payload.CRIOHandler{RuntimeType: "vm", RuntimeRoot: "/2", AllowedAnnotations: []string{"a"}, PrivilegedWithoutHostDevices: true}}}}
	program := &job{crio: []crio.Handler{{Name: "kata", CRIOHandler: payload.CRIOHandler{RuntimeType: "oci", RuntimePath: "/2/kata"}}}}
	for name, c := range map[string]struct {
		job    *job
		loaded map[string]cri.Loaded
		ok     bool
	}{
		"new":          {one, map[string]cri.Loaded{"kata": {Type: "vm", Path: "/2/shim", ConfigPath: "/2/c"}}, true},
		"old":          {one, map[string]cri.Loaded{"kata": {Type: "vm", Path: "/1/shim", ConfigPath: "/2/c"}}, false},
		"old config":   {one, map[string]cri.Loaded{"kata": {Type: "vm", Path: "/2/shim", ConfigPath: "/1/c"}}, false},
		"not loaded":   {one, map[string]cri.Loaded{}, false},
		"not told":     {one, nil, true},
		"other root":   {settled, map[string]cri.Loaded{"kata": {Type: "vm", AllowedAnnotations: []string{"a"}, PrivilegedWithoutHostDevices: true, Root: "/1"}}, false},
		"annotations":  {settled, map[string]cri.Loaded{"kata": {Type: "vm", PrivilegedWithoutHostDevices: true, Root: "/2"}}, false},
		"devices":      {settled, map[string]cri.Loaded{"kata": {Type: "vm", AllowedAnnotations: []string{"a"}, Root: "/2"}}, false},
		"settings":     {settled, map[string]cri.Loaded{"kata": {Type: "vm", AllowedAnnotations: []string{"a"}, PrivilegedWithoutHostDevices: true, Root: "/2"}}, true},
		"another type": {one, map[string]cri.Loaded{"kata": {Type: "oci", Path: "/2/shim", ConfigPath: "/2/c"}}, false},
		"monitored":    {program, map[string]cri.Loaded{"kata": {Type: "oci", Path: "/2/kata", Monitor: "/usr/bin/conmon"}}, true},
		"no monitor":   {program, map[string]cri.Loaded{"kata": {Type: "oci", Path: "/2/kata"}}, false},
	} {
		c.job.release.Handlers = []string{"kata"}
		if err := served(cri.Seen{Name: "cri-o", Handlers: []string{"kata"}, Loaded: c.loaded}, c.job); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The same for an uninstall: the edit stays, what is uninstalled is there again, and the
// result does not say in one breath that this was done and that it could not be.
func TestEditUnderARemoval(t *testing.T) {
	releases(t, func(t *testing.T, n *node) {
		const file = "etc/containerd/config.toml"
		n.install(bundle(t, "test", "1", "1"))
		edited := false
		n.onRestart = func() {
			if !edited {
				edited = true
				n.write(file, strings.Replace(n.read(file), n.table("foreign"), "# an admin was here\n", 1))
			}
		}
		i := n.installer()
		i.options.Wait = time.Second
		r := i.Uninstall(t.Context(), "test")
		if r.State != payload.Failed || r.Reason != payload.HandlerNotServed || !strings.Contains(r.Message, errAside.Error()) || strings.Contains(r.Message, "could not be undone") || !strings.Contains(r.Message, "foreign") {
			t.Fatalf("%+v", r)
		}
		n.serves("runc", "test")
		if text := n.read(file); !strings.Contains(text, "# an admin was here") {
			t.Fatalf("it is now\n%s", text)
		}
		n.uninstall("test")
		n.serves("runc")
	})
}

// A file that containerd reads later, and that says another thing of a handler of ours, is
// named before anything is restarted: no restart would help. It is in the way of uninstalling,
// too, as the handler would stay.
func TestOverriddenHandler(t *testing.T) {
	n := newNode(t, 2)
	dir := bundle(t, "test", "1", "1")
	n.install(dir)
	restarts := n.count()
	n.write("etc/containerd/conf.d/fairlead-zz.toml", "version = 3\n"+n.table("test"))
	refused := func() {
		t.Helper()
		r := n.installer().Install(t.Context(), sources([]string{dir}))[0]
		if r.State != payload.Refused || r.Reason != payload.Conflict || !strings.Contains(r.Message, "fairlead-zz.toml:4: runtime_type of handler test") {
			t.Errorf("%+v", r)
		}
	}
	refused()
	if n.count() != restarts {
		t.Error("it was restarted")
	}
	n.restart() // by the admin
	refused()
	if n.count() != restarts+1 {
		t.Error("it was restarted over what no restart helps")
	}
	if r := n.installer().Uninstall(t.Context(), "test"); r.State != payload.Refused || r.Reason != payload.Conflict || !strings.Contains(r.Message, "fairlead-zz.toml:3: handler test is there as well") || n.count() != restarts+1 {
		t.Errorf("%+v", r)
	}
	if err := os.Remove(n.path("etc/containerd/conf.d/fairlead-zz.toml")); err != nil {
		t.Fatal(err)
	}
	n.uninstall("test")
	n.serves("runc", "foreign")
}
