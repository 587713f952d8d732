package installer

import (
	"slices"
	"strings"
	"testing"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/kubelet"
)

// A runtime that the kubelet does not use is refused, and told of where the user has named
// it. It can be cleaned up in any case.
func TestRuntimeThatTheKubeletDoesNotUse(t *testing.T) {
	n := newNode(t, 2)
	other := &kubelet.Kubelet{Root: n.root, Endpoint: "unix:///run/crio/crio.sock", LogSize: "10Mi", LogFiles: 5}
	const says = "the kubelet uses unix:///run/crio/crio.sock, and what is worked on here is containerd at /run/containerd/containerd.sock"
	before := n.tree("etc")
	dir := bundle(t, "test", "1", "1")

	i := n.installer()
	i.kubelet, i.named = other, false
	if r := i.Install(t.Context(), sources([]string{dir}))[0]; r.State != payload.Refused || r.Reason != payload.UnsupportedNode || !strings.Contains(r.Message, says) {
		t.Errorf("not named: %+v", r)
	}
	n.same(before, "etc")
	n.bare()

	i = n.installer()
	i.kubelet = other
	told := func(s string) bool { return strings.Contains(s, says) }
	if r := i.Install(t.Context(), sources([]string{dir}))[0]; r.State != payload.Installed || !slices.ContainsFunc(r.Warnings, told) {
		t.Errorf("named: %+v", r)
	}
	same := *other
	same.Endpoint = "unix:///var/run/containerd/containerd.sock"
	i.kubelet, i.named = &same, false
	if r := i.Install(t.Context(), sources([]string{dir}))[0]; r.State != payload.Installed || slices.ContainsFunc(r.Warnings, told) {
		t.Errorf("the kubelet's: %+v", r)
	}
	i.kubelet = other
	if r := i.Remove(t.Context(), "test"); r.State != payload.Removed {
		t.Errorf("%+v", r)
	}
	n.same(before, "etc")
	n.bare()
}
