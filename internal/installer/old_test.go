package installer

import (
	"strings"
	"testing"

	payload "fairlead.run/api/payload/v1alpha1"
)

// Handlers by the tables that containerd has from before it had a table of handlers are
// served after as before, and none is written down twice.
func TestOldTablesOfHandlers(t *testing.T) {
	const plugin = `plugins."io.containerd.grpc.v1.cri".containerd`
	const tables = "\n[" + plugin + ".default_runtime]\n  runtime_type = \"io.containerd.runc.v2\"\n[" + plugin + ".untrusted_workload_runtime]\n  runtime_type = \"io.containerd.runc.v1\"\n"
	n := newNode(t, 1)
	table := n.table("foreign")
	for name, c := range map[string]struct {
		config string
		served []string
	}{
		"alone":               {"version = 2\n" + tables, []string{"default", "runc", "untrusted"}},
		"beside handlers":     {"version = 2\n" + table + tables, []string{"default", "foreign", "untrusted"}},
		"as containerd's own": {"version = 2\n" + n.table("runc") + "\n[" + plugin + ".untrusted_workload_runtime]\n  runtime_type = \"\"\n", []string{"runc"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNodeWith(t, 1, byItself, map[string]string{byItself.main: c.config})
			before := n.tree("etc")
			n.serves(c.served...)
			n.install(bundle(t, "test", "1", "1"))
			n.serves(append(c.served, "test")...)
			n.install(bundle(t, "more", "1", "1"), bundle(t, "test", "2", "2"))
			n.serves(append(c.served, "test", "more")...)
			if r := n.installer().Install(t.Context(), sources([]string{bundle(t, "untrusted", "1", "1")}))[0]; name != "as containerd's own" && (r.State != payload.Refused || r.Reason != payload.Conflict) {
				t.Errorf("%+v", r)
			}
			n.uninstall("test", "more", "untrusted")
			n.serves(c.served...)
			n.same(before, "etc")
			n.bare()
		})
	}
	// One that is taken out waits for a restart, as every other handler does.
	n = newNodeWith(t, 1, byItself, map[string]string{byItself.main: "version = 2\n" + tables})
	n.write(byItself.main, "version = 2\n"+strings.Replace(tables, ".untrusted_workload_runtime", ".other", 1))
	if r := n.installer().Install(t.Context(), sources([]string{bundle(t, "test", "1", "1")}))[0]; r.State != payload.Refused || r.Reason != payload.Conflict || !strings.Contains(r.Message, "untrusted") {
		t.Errorf("%+v", r)
	}
}

// The handler of pods without a class is not taken away, as there would be no CRI.
func TestUninstallOfTheDefaultHandler(t *testing.T) {
	releases(t, func(t *testing.T, n *node) {
		n.install(bundle(t, "test", "1", "1"))
		good := n.read(byItself.main)
		head := "\n[" + n.plugin() + ".containerd]\n  default_runtime_name = \"test\"\n"
		at := strings.Index(good, "\n["+n.plugin())
		n.write(byItself.main, good[:at]+head+good[at:])
		n.restart()
		before, restarts := n.tree(""), n.count()
		if r := n.installer().Uninstall(t.Context(), "test"); r.State != payload.Refused || r.Reason != payload.Conflict || !strings.Contains(r.Message, "default_runtime_name is test") || n.count() != restarts {
			t.Errorf("after %d restarts %+v", n.count()-restarts, r)
		}
		n.same(before, "")
		n.serves("runc", "foreign", "test")
		n.install(bundle(t, "test", "2", "2"))
		n.write(byItself.main, strings.Replace(n.read(byItself.main), `_name = "test"`, `_name = "runc"`, 1))
		n.uninstall("test")
		n.serves("runc", "foreign")
	})
}
