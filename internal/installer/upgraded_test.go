package installer

import (
	"os"
	"strings"
	"testing"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/profile"
)

const main = "etc/containerd/config.toml"

// without fails if something of the installer is in a file.
func (n *node) without(name string) {
	n.Helper()
	if text := n.read(name); strings.Contains(text, "fairlead") || strings.Contains(text, "test") {
		n.Errorf("%s is\n%s", name, text)
	}
}

// What was installed below containerd 1.6 is a block in its file. It goes also once the node
// has containerd 2, which has files of their own for handlers.
func TestContainerdIsUpgraded(t *testing.T) {
	n := newNode(t, 1)
	before := n.tree("etc")
	n.install(bundle(t, "test", "1", "1"), bundle(t, "more", "1", "1"))
	n.major = 2
	n.restart()
	n.serves("runc", "foreign", "test", "more")
	n.uninstall("more")
	n.serves("runc", "foreign", "test")

	n.install(bundle(t, "test", "2", "2"))
	n.serves("runc", "foreign", "test")
	if shim := n.shim("test"); !strings.Contains(shim, "/2-") {
		t.Errorf("it is served from %s", shim)
	}
	if text := n.read(main); strings.Contains(text, "begin test") {
		t.Errorf("it is\n%s", text)
	}
	n.uninstall("test")
	n.serves("runc", "foreign")
	n.same(before, "etc")
	n.bare()
}

// The admin has containerd's own command write its file anew for 2.x, which loses our
// comments. What others have in the same tables stays.
func TestContainerdIsUpgradedAndItsFileMigrated(t *testing.T) {
	n := newNode(t, 1)
	n.install(bundle(t, "test", "1", "1"))
	shim := n.shim("test")
	n.major = 2
	migrated := n.adminConfig() + "\n[" + n.plugin() + ".containerd.runtimes.test]\n  runtime_type = \"" + shim + "\"\n  [" + n.plugin() + ".containerd.runtimes.test.options]\n    ConfigPath = \"/c\"\n"
	n.write(main, migrated)
	n.restart()
	n.uninstall("test")
	n.serves("runc", "foreign")
	if text := n.read(main); text != n.adminConfig()+"\n" {
		t.Errorf("it is\n%s", text)
	}
	n.bare()
}

// An admin imports a file whose table of handlers takes the place of the first one's.
func TestAnotherFileCounts(t *testing.T) {
	n := newNode(t, 1)
	before := n.read(main)
	n.install(bundle(t, "test", "1", "1"))
	const other = "etc/containerd/other.toml"
	text := "version = 2\n" + n.table("runc") + n.table("foreign")
	n.write(other, text)
	const imports = "imports = [\"/etc/containerd/other.toml\"]\n"
	n.write(main, imports+n.read(main))
	n.restart()
	n.serves("runc", "foreign")
	n.install(bundle(t, "test", "1", "1"))
	n.serves("runc", "foreign", "test")
	n.without(main)
	n.uninstall("test")
	n.serves("runc", "foreign")
	if n.read(main) != imports+before || n.read(other) != text {
		t.Errorf("it is\n%s\nand\n%s", n.read(main), n.read(other))
	}
	// It is uninstalled while the block is where nobody looks any more.
	n.write(main, before)
	n.restart()
	n.install(bundle(t, "test", "2", "2"))
	n.write(main, imports+n.read(main))
	n.restart()
	n.uninstall("test")
	if n.read(main) != imports+before || n.read(other) != text {
		t.Errorf("it is\n%s\nand\n%s", n.read(main), n.read(other))
	}
	n.bare()
}

// containerd is told to read another file.
func TestContainerdReadsAnotherFile(t *testing.T) {
	releases(t, func(t *testing.T, n *node) {
		const other = "opt/containerd/config.toml"
		n.write(other, n.adminConfig())
		before, opt := n.tree("etc"), n.tree("opt")
		n.install(bundle(t, "test", "1", "1"))
		n.main = "/" + other
		n.restart()
		moved := func() *Installer {
			i := n.installer()
			again, err := New(Options{Root: n.root, Distribution: "containerd", Restart: "none", Wait: i.options.Wait, Interval: 1, Override: profile.Override{Config: n.main}}, i.log)
			if err != nil {
				t.Fatal(err)
			}
			again.restarter = i.restarter
			return again
		}
		if r := moved().Install(t.Context(), sources([]string{bundle(t, "test", "2", "2")}))[0]; r.State != payload.Installed {
			t.Fatalf("%+v", r)
		}
		n.serves("runc", "foreign", "test")
		if text := n.read(main); text != before["/"+main][strings.Index(before["/"+main], "\n")+1:] {
			t.Errorf("it is\n%s", text)
		}
		if r := moved().Uninstall(t.Context(), "test"); r.State != payload.Removed {
			t.Fatalf("%+v", r)
		}
		n.same(opt, "opt")
		n.same(before, "etc")
		if _, err := os.Stat(n.path("var/lib/fairlead-installer")); err == nil {
			t.Error("the journal is left")
		}
	})
}
