package installer

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/failpoint"
)

// A runtime that would not come back from the restart is left as it is, with what helps.
func TestUninstallUnderAConfigurationThatWouldNotStart(t *testing.T) {
	releases(t, func(t *testing.T, n *node) {
		const file = "etc/containerd/config.toml"
		n.install(bundle(t, "test", "1", "1"), bundle(t, "more", "1", "1"))
		good := n.read(file)
		for name, c := range map[string]struct{ from, to, says string }{
			"dangling import": {"version = ", "imports = [\"/none/such.toml\", \"/etc/containerd/conf.d/*.toml\"]\nversion = ", "imports /none/such.toml"},
			"no CRI":          {"version = ", "disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\nversion = ", "disabled_plugins"},
			"unknown version": {"version = ", "version = 9", "only versions up to 4"},
			"garbage":         {"version = ", "[[[\nversion = ", file},
		} {
			text := good
			if n.major == 2 { // the list that the installer made takes the place of the admin's
				_, text, _ = strings.Cut(good, "# fairlead: import\n")
				text = "# of this machine\n" + text
			}
			n.write(file, strings.Replace(text, c.from, c.to, 1))
			before, restarts := n.tree(""), n.count()
			if r := n.installer().Uninstall(t.Context(), "test"); r.State != payload.Refused || !strings.Contains(r.Message, c.says) || n.count() != restarts {
				t.Errorf("%s: after %d restarts %+v", name, n.count()-restarts, r)
			}
			n.same(before, "")
			n.serves("runc", "foreign", "test", "more")
		}
		n.write(file, good)
		n.uninstall("test", "more")
		n.serves("runc", "foreign")
	})
}

// containerd's own program reads what is left before it is restarted with that.
func TestUninstallHasTheConfigurationRead(t *testing.T) {
	n := newNode(t, 2)
	n.install(bundle(t, "test", "1", "1"))
	before, restarts := n.tree("etc"), n.count()
	// It runs in the node's root directory, which has no libraries.
	build := exec.Command("go", "build", "-trimpath", "-o", n.path("usr/bin/containerd"), "./testdata/dislikes")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if r := n.installer().Uninstall(t.Context(), "test"); r.State != payload.RolledBack || !strings.Contains(r.Message, "not to its taste") || n.count() != restarts {
		t.Errorf("after %d restarts %+v", n.count()-restarts, r)
	}
	n.serves("runc", "foreign", "test")
	n.same(before, "etc")
}

// What stops a removal half way has it undone.
func TestRemovalThatIsStopped(t *testing.T) {
	releases(t, func(t *testing.T, n *node) {
		n.install(bundle(t, "test", "1", "1"))
		before := n.tree("etc")
		for _, place := range []string{"install.half-written", "install.removing", "install.unserved"} {
			if err := failpoint.Enable(place + "=error"); err != nil {
				t.Fatal(err)
			}
			r := n.installer().Uninstall(t.Context(), "test")
			if err := failpoint.Enable(""); err != nil {
				t.Fatal(err)
			}
			if r.State != payload.RolledBack {
				t.Errorf("%s: %+v", place, r)
			}
			n.serves("runc", "foreign", "test")
			n.same(before, "etc")
		}
	})
}
