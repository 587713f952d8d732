package spec

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// mapped is a plain request in a pod with a user namespace, in which 0 to 3999 are
// 50000 to 53999.
func mapped(t *testing.T) *testCase {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give folders away")
	}
	tc := plain(t)
	ids := []pod.IDMapping{{HostID: 50000, Length: 4000}}
	tc.record.Config.Security.Namespaces.User = &pod.UserNamespace{UIDs: ids, GIDs: ids}
	tc.record.Sandbox.UserNS = "/ns/user"
	return tc
}

func TestUserNamespaceIsJoined(t *testing.T) {
	tc := mapped(t)
	tc.c.Process.WorkingDir = "/new/dir"
	tc.req.Image.Volumes = []string{"/vol"}
	w := tc.spec(t)
	want := specs.LinuxNamespace{Type: specs.UserNamespace, Path: "/ns/user"}
	if !slices.Contains(w.spec.Linux.Namespaces, want) {
		t.Errorf("namespaces %v", w.spec.Linux.Namespaces)
	}
	ids := []specs.LinuxIDMapping{{HostID: 50000, Size: 4000}}
	if !slices.Equal(w.spec.Linux.UIDMappings, ids) || !slices.Equal(w.spec.Linux.GIDMappings, ids) {
		t.Errorf("mappings %v, %v", w.spec.Linux.UIDMappings, w.spec.Linux.GIDMappings)
	}
	vol := w.spec.Mounts[slices.IndexFunc(w.spec.Mounts, func(m specs.Mount) bool { return m.Destination == "/vol" })].Source
	for _, made := range []string{filepath.Join(tc.req.Rootfs, "new"), filepath.Join(tc.req.Rootfs, "new/dir"), vol} {
		var st unix.Stat_t
		must(t, unix.Stat(made, &st))
		if st.Uid != 50000 || st.Gid != 50000 {
			t.Errorf("%s belongs to %d:%d", made, st.Uid, st.Gid)
		}
	}
}

// The kernel mounts no sysfs for a user namespace on a network that is not its own.
func TestSysOnTheNodesNetwork(t *testing.T) {
	sys := func(tc *testCase) specs.Mount {
		w := tc.spec(t)
		return w.spec.Mounts[slices.IndexFunc(w.spec.Mounts, func(m specs.Mount) bool { return m.Destination == "/sys" })]
	}
	tc := mapped(t)
	if m := sys(tc); m.Type != "sysfs" {
		t.Errorf("with a network of its own: %+v", m)
	}
	tc = mapped(t)
	tc.record.Config.Security.Namespaces.Network = pod.NamespaceNode
	tc.req.Handler.Features.RecursiveReadOnlyMounts = false
	if m := sys(tc); m.Type != "bind" || m.Source != "/sys" || !slices.Contains(m.Options, "rbind") || !slices.Contains(m.Options, "ro") {
		t.Errorf("on the node's: %+v", m)
	}
	tc.req.Handler.Features.RecursiveReadOnlyMounts = true
	if m := sys(tc); !slices.Contains(m.Options, "rro") || slices.Contains(m.Options, "ro") {
		t.Errorf("where all mounts below can be read-only, too: %+v", m)
	}
}

func TestMountIsMapped(t *testing.T) {
	tc := mapped(t)
	dir := t.TempDir()
	ids := tc.record.Config.Security.Namespaces.User.UIDs
	var asked []pod.MapRequest
	tc.cfg.Map = func(_ context.Context, m pod.MapRequest) (string, error) {
		asked = append(asked, m)
		return "/elsewhere", nil
	}
	tc.c.Mounts = []pod.Mount{{ContainerPath: "/a", HostPath: dir}, {ContainerPath: "/b", HostPath: dir, UIDMappings: ids, GIDMappings: ids}}
	w := tc.spec(t)
	want := pod.MapRequest{Container: "container1", Index: 1, Source: dir, UserNS: "/ns/user"}
	if len(asked) != 1 || asked[0] != want {
		t.Errorf("asked for %+v, want %+v", asked, want)
	}
	for _, m := range w.spec.Mounts {
		if from := map[string]string{"/a": dir, "/b": "/elsewhere"}[m.Destination]; from != "" && m.Source != from {
			t.Errorf("%s is %s, want %s", m.Destination, m.Source, from)
		}
	}
}

func TestUserNamespaceRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*testCase)
		kind   error
		says   string
	}{
		"another namespace": {func(tc *testCase) { tc.c.Security.Namespaces.User = &pod.UserNamespace{Mode: pod.NamespaceNode} }, errdefs.ErrInvalidArgument, "userns_options.mode"},
		"no namespace":      {func(tc *testCase) { tc.record.Sandbox.UserNS = "" }, errdefs.ErrInternal, "user namespace"},
		"unmapped user":     {func(tc *testCase) { tc.c.Security.Identity.UID = ptr(int64(4000)) }, errdefs.ErrInvalidArgument, "user 4000"},
		"unmapped group": {func(tc *testCase) {
			tc.c.Security.Identity.SupplementalGroups = []int64{4000}
		}, errdefs.ErrInvalidArgument, "group 4000"},
		"shared mount": {func(tc *testCase) {
			tc.c.Mounts = []pod.Mount{{ContainerPath: "/a", HostPath: "/", Propagation: pod.PropagationBidirectional}}
		}, errdefs.ErrInvalidArgument, "Bidirectional"},
	} {
		t.Run(name, func(t *testing.T) {
			tc := mapped(t)
			tt.change(tc)
			tc.refused(t, tt.kind, tt.says)
		})
	}
	plain := plain(t)
	ids := []pod.IDMapping{{HostID: 50000, Length: 100}}
	plain.c.Security.Namespaces.User = &pod.UserNamespace{UIDs: ids, GIDs: ids}
	plain.refused(t, errdefs.ErrInvalidArgument, "userns_options.mode")
}

// The bundle's folder lets the pod's root through and nobody else; that of
// other pods nobody.
func TestBundleFolders(t *testing.T) {
	tc := mapped(t)
	ours := plain(t)
	ours.cfg.StateDir = tc.cfg.StateDir
	tc.record.ID, ours.record.ID = "mapped", "plain"
	for name, r := range map[string]*testCase{"mapped": tc, "plain": ours} {
		b, err := New(r.cfg)
		must(t, err)
		_, err = b.WriteSandbox(t.Context(), r.record, r.req.Handler)
		must(t, err)
		var st unix.Stat_t
		must(t, unix.Stat(filepath.Join(r.cfg.StateDir, "containers", name), &st))
		want := map[string][2]uint32{"mapped": {50000, 0o710}, "plain": {0, 0o700}}[name]
		if got := [2]uint32{st.Gid, st.Mode & 0o777}; got != want {
			t.Errorf("%s: group %d and mode %o, want %d and %o", name, got[0], got[1], want[0], want[1])
		}
	}
}
