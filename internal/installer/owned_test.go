package installer

import (
	"strings"
	"testing"

	payload "fairlead.run/api/payload/v1alpha1"
)

// Somebody writes a handler of a name that an installer was about to write when it was
// killed. Nothing takes it away, neither another attempt nor uninstalling.
func TestHandlerThatOthersHaveWrittenFirst(t *testing.T) {
	releases(t, func(t *testing.T, n *node) {
		const file = "etc/containerd/config.toml"
		dir := bundle(t, "test", "1", "1")
		if !n.killed("install.intended", dir) {
			t.Fatal("nobody was killed")
		}
		n.write(file, strings.Replace(n.read(file), "# the end", n.table("test")+"# the end", 1))
		n.restart()
		before := n.tree("etc")
		if r := n.installer().Install(t.Context(), sources([]string{dir}))[0]; r.State != payload.Refused || r.Reason != payload.Conflict {
			t.Errorf("%+v", r)
		}
		n.serves("runc", "foreign", "test")
		n.same(before, "etc")
		// Another type goes its way, and waits for that handler as for all others.
		n.install(bundle(t, "other", "1", "1"))
		n.serves("runc", "foreign", "test", "other")
		n.uninstall("other", "test")
		n.serves("runc", "foreign", "test")
		n.same(before, "etc")
		n.bare()
	})
}
