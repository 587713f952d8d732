package installer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/profile"
)

// inK3s is a containerd of k3s, on a node that has a unit of containerd as well.
var inK3s = setup{"k3s", "run/k3s/containerd/containerd.sock", k3sFolder + "config.toml", imported}

// down runs a test with a node whose distribution no installer is told.
func down(t *testing.T, f func(t *testing.T, n *node)) {
	t.Helper()
	t.Setenv(distributionEnv, "")
	releases(t, f)
	t.Run("k3s", func(t *testing.T) { f(t, newNodeWith(t, 2, inK3s, nil)) })
}

// boots has the node begin anew, without what was in /run.
func (n *node) boots() {
	n.Helper()
	n.stop()
	if err := os.RemoveAll(n.path("run")); err != nil {
		n.Fatal(err)
	}
	n.restart()
}

// An installer is killed anywhere, and the daemon does not start with what it has written, so
// that not even its socket is there. The next one is told no distribution, undoes that, and
// does what it was to do.
func TestKilledAndADaemonWithoutASocket(t *testing.T) {
	down(t, func(t *testing.T, n *node) {
		before, came := n.tree("etc"), 0
		config := n.tree(filepath.Dir(n.main))
		for at, place := range places() {
			n.fatal = "bad"
			if !n.killed(place, bundle(t, "bad", "1", place)) {
				n.fatal = ""
				continue
			}
			n.boots()
			down := n.server == nil
			if down {
				came++
				recorded(t, n, "bad")
			}
			if down && at%2 == 1 { // half of the time another one comes first
				n.install(bundle(t, "good", "1", "1"))
				n.serves("runc", "foreign", "good")
				n.uninstall("good")
			}
			if r := n.installer().Remove(t.Context(), "bad"); r.State != payload.Removed {
				t.Errorf("%s: %+v", place, r)
			}
			n.fatal = ""
			n.serves("runc", "foreign")
			n.same(before, "etc")
			n.same(config, filepath.Dir(n.main))
			n.gone()
			if t.Failed() {
				t.Fatalf("after a kill at %s", place)
			}
		}
		if came < 4 {
			t.Errorf("the daemon was down after %d kills only", came)
		}
	})
}

// gone fails if there are programs or a journal of the installer.
func (n *node) gone() {
	n.Helper()
	left, err := filepath.Glob(n.path("usr/bin/*"))
	if err != nil || len(left) > 0 {
		n.Errorf("%v is left: %v", left, err)
	}
	if _, err := os.Lstat(n.path(DefaultState)); err == nil {
		n.Errorf("%s is left", DefaultState)
	}
}

// recorded fails unless the status of a node whose daemon is down has a type.
func recorded(t *testing.T, n *node, kind string) {
	t.Helper()
	all, err := n.installer().Status(t.Context())
	has := slices.ContainsFunc(all, func(s Status) bool { return s.Type == kind && s.Phase != "done" && !s.Served })
	if fault.Of(err) != payload.RuntimeUnavailable || !has {
		t.Errorf("%+v %v", all, err)
	}
}

// What is found out is noted before anything is changed, and goes with what was changed.
func TestNodeIsNotedBeforeItIsChanged(t *testing.T) {
	t.Setenv(distributionEnv, "")
	n := newNode(t, 2)
	before := n.tree("")
	if !n.killed("install.intended", bundle(t, "test", "1", "1")) {
		t.Fatal("nobody was killed")
	}
	_, noted, err := profile.ReadMetadata(n.root, DefaultState)
	if err != nil || noted.Distribution != "containerd" || noted.Socket != "/"+n.socket {
		t.Errorf("%+v %v", noted, err)
	}
	if r := n.installer().Remove(t.Context(), "test"); r.State != payload.Removed {
		t.Errorf("%+v", r)
	}
	n.same(before, "")
}

// A kubelet that is seen says which runtime is down, whatever else there is of others.
func TestKubeletOfARuntimeThatIsDown(t *testing.T) {
	t.Setenv(distributionEnv, "")
	n := newNode(t, 2)
	n.write("etc/systemd/system/k0sworker.service", "")
	n.write("proc/7/comm", "kubelet\n")
	n.write("proc/7/cmdline", "kubelet\x00--container-runtime-endpoint=unix:///run/containerd/containerd.sock\x00")
	n.stop()
	i := n.installer()
	r := i.Install(t.Context(), sources([]string{bundle(t, "test", "1", "1")}))[0]
	if r.State != payload.Refused || r.Reason != payload.RuntimeUnavailable || !strings.Contains(r.Message, "start containerd if it does not run (journalctl -u containerd.service") {
		t.Errorf("%+v", r)
	}
	if err := i.Answers(t.Context()); fault.Of(err) != payload.RuntimeUnavailable {
		t.Error(err)
	}
	n.restart()
	n.install(bundle(t, "test", "1", "1"))
	n.serves("runc", "foreign", "test")
}

// While another installer restarts the runtime one waits for that, also where nothing was
// noted yet.
func TestWaitsForWhoRestartsTheRuntime(t *testing.T) {
	t.Setenv(distributionEnv, "")
	n := newNode(t, 2)
	unlock, err := n.installer().lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n.stop()
	i := n.installer()
	done := make(chan payload.InstallResult, 1)
	go func() { done <- i.Install(t.Context(), sources([]string{bundle(t, "test", "1", "1")}))[0] }()
	time.Sleep(300 * time.Millisecond)
	n.restart()
	unlock()
	if r := <-done; r.State != payload.Installed {
		t.Errorf("%+v", r)
	}
}

// Of two units the runtime tells its own while it runs, so that an installer that was made
// before looks when it needs that.
func TestUnitOfARuntimeThatIsDown(t *testing.T) {
	n := newNode(t, 2)
	n.stop()
	const units = "etc/systemd/system/"
	n.write(units+"rke2-server.service", "")
	n.write(units+"rke2-agent.service", "")
	i, err := New(Options{Root: n.root, Distribution: "rke2", proc: n.path("proc")}, n.installer().log)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.restarter.Restart(t.Context()); fault.Of(err) != payload.RuntimeUnavailable || !strings.Contains(err.Error(), "name the unit by --unit") || !strings.HasPrefix(i.restarter.String(), "restart") {
		t.Error(err)
	}
	n.write(units+"multi-user.target.wants/rke2-agent.service", "")
	if err := i.restarter.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), "restart rke2-agent.service: connect to systemd") {
		t.Error(err)
	}
	i.runtime.Socket = n.path("control") // somebody listens, whose unit is none of them
	if err := os.RemoveAll(n.path(units + "multi-user.target.wants")); err != nil {
		t.Fatal(err)
	}
	if err := i.restarter.Restart(t.Context()); fault.Of(err) != payload.UnsupportedNode {
		t.Error(err)
	}
}

// What a journal has is listed where it is not known which runtime is to be asked.
func TestRecorded(t *testing.T) {
	n := newNode(t, 2)
	n.install(bundle(t, "test", "1", "1"))
	all, err := Recorded(Options{Root: n.root})
	if err != nil || len(all) != 1 || all[0].Type != "test" || all[0].Phase != "done" || all[0].Served {
		t.Errorf("%+v %v", all, err)
	}
	if all, err := Recorded(Options{Root: t.TempDir()}); err != nil || all == nil || len(all) > 0 {
		t.Errorf("%+v %v", all, err)
	}
}
