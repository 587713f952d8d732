package installer

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	payload "fairlead.run/api/payload/v1alpha1"
)

// What pods that were deleted have left is waited for, as a kubelet removes it a while
// later. Pods that run are told of at once.
func TestRemovalOutlastsWhatPodsLeave(t *testing.T) {
	sandbox := func(name string, state runtimeapi.PodSandboxState) *runtimeapi.PodSandbox {
		return &runtimeapi.PodSandbox{Id: name, RuntimeHandler: "test", State: state, Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "n", Name: name}}
	}
	ended, runs := sandbox("ended", runtimeapi.PodSandboxState_SANDBOX_NOTREADY), sandbox("runs", runtimeapi.PodSandboxState_SANDBOX_READY)
	for name, c := range map[string]struct {
		sandboxes []*runtimeapi.PodSandbox
		linger    time.Duration
		// gone is after how many looks there are none any more; 0 is never.
		gone, looks int
		says        string // "" if it is removed
	}{
		"one that is removed":       {[]*runtimeapi.PodSandbox{ended}, time.Hour, 3, 0, ""},
		"one that stays":            {[]*runtimeapi.PodSandbox{ended}, time.Nanosecond, 0, 2, "n/ended; they have ended"},
		"one that runs":             {[]*runtimeapi.PodSandbox{runs}, time.Hour, 0, 2, "n/runs; delete them first"},
		"one that runs, and others": {[]*runtimeapi.PodSandbox{ended, runs}, time.Hour, 0, 2, "n/ended, n/runs; delete them first"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 2)
			before := n.tree("etc")
			n.install(bundle(t, "test", "1", "1"))
			looks := 0
			n.mu.Lock()
			n.sandboxes = c.sandboxes
			n.onList = func() error {
				if looks++; looks == c.gone {
					n.sandboxes = nil
				}
				return nil
			}
			n.mu.Unlock()
			i := n.installer()
			i.options.Linger = c.linger
			r := i.Uninstall(t.Context(), "test")
			if c.says == "" {
				if r.State != payload.Removed {
					t.Errorf("%+v", r)
				}
				n.same(before, "etc")
				n.bare()
				return
			}
			if r.State != payload.Refused || r.Reason != payload.InUse || !strings.Contains(r.Message, c.says) || looks > c.looks {
				t.Errorf("after %d looks: %+v", looks, r)
			}
		})
	}
}

// A type that somebody names and that is not installed is told apart from one that was
// removed; what payloads bring may be removed again and again.
func TestUninstallOfWhatIsNotInstalled(t *testing.T) {
	n := newNode(t, 2)
	before := n.tree("")
	refused := func(says string) {
		t.Helper()
		r := n.installer().Uninstall(t.Context(), "tset", "tset-long")
		if r.State != payload.Refused || r.Reason != payload.NotInstalled || !r.Reason.Permanent() || r.Type != "tset" || !strings.HasSuffix(r.Message, says) {
			t.Errorf("%+v", r)
		}
		if r := n.installer().Remove(t.Context(), "tset"); r.State != payload.Removed || r.Reason != "" || r.Message != "" {
			t.Errorf("%+v", r)
		}
	}
	refused("; nothing is")
	n.install(bundle(t, "test", "1", "1"), bundle(t, "other", "1", "1"))
	refused("; what is installed is other and test")
	n.serves("runc", "foreign", "other", "test")
	for _, name := range []string{"test", "other"} {
		if r := n.installer().Uninstall(t.Context(), "short", name); r.State != payload.Removed || r.Type != name {
			t.Errorf("%+v", r)
		}
	}
	n.serves("runc", "foreign")
	after := n.tree("")
	for _, m := range []map[string]string{before, after} {
		delete(m, "/run/containerd/containerd.sock")
	}
	if !maps.Equal(before, after) {
		t.Errorf("it is %v and was %v", slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
	}
}

// A pod that comes at the last moment has what it runs on again.
func TestRemovalUnderALatePod(t *testing.T) {
	n := newNode(t, 2)
	n.install(bundle(t, "test", "1", "1"))
	before := n.tree("etc")
	n.onRestart = func() {
		n.sandboxes = []*runtimeapi.PodSandbox{{Id: "late", RuntimeHandler: "test", Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "n", Name: "late"}}}
	}
	if r := n.installer().Uninstall(t.Context(), "test"); r.State != payload.RolledBack || r.Reason != payload.InUse || !strings.Contains(r.Message, "n/late") {
		t.Errorf("%+v", r)
	}
	n.serves("runc", "foreign", "test")
	n.same(before, "etc")
}
