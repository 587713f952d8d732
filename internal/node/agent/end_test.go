package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/ledger"
	"fairlead.run/internal/node/removal"
)

// TestEndGivesVolumesBack has a pod that has ended for good give its volumes back before
// who evicts it hears of its end, though the disk is so full that its end cannot be
// written down; it is, once there is room. The volumes of one that may run again stay.
func TestEndGivesVolumesBack(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a file system")
	}
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		if err := unix.Mount("tmpfs", n.root, "tmpfs", 0, "size=1m,nr_inodes=100"); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := unix.Unmount(n.root, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}()
		full, again := pod(1, corev1.RestartPolicyAlways, "x"), pod(2, corev1.RestartPolicyAlways, "x")
		paths := map[string]string{}
		for _, p := range []*corev1.Pod{full, again} {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			paths[p.Name] = filepath.Join(removal.Dirs(n.root, n.state, string(p.UID)).Disk, "volumes", "v")
		}
		n.boot(t, full, again)
		if err := os.WriteFile(filepath.Join(paths["p2"], "f"), []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(paths["p1"], "f"), make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
		n.Evict(full.UID, 0, Refusal{Reason: "Evicted", Message: "the disk is full"})
		n.Evict(again.UID, 0, Refusal{Reason: "Shutdown", Message: "the machine shuts down", Again: true})
		within, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := n.Await(within, full.UID); err != nil {
			t.Error(err)
		}
		if exists(t, paths["p1"]) {
			t.Error("its end is told of, and the disk is as full as before")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodFailed, false)
		if r, found, err := n.ledger.Read(full.UID); err != nil || !found || r.Ended == nil || !n.saw("p1 FailedSync: ") || !n.saw("; make room there") {
			t.Errorf("%+v %v, told %q", r, err, n.events)
		}
		if !exists(t, filepath.Join(paths["p2"], "f")) {
			t.Error("a pod that runs again has lost its volume")
		}
		n.Resume()
		synctest.Wait()
		n.expect(t, "p2", corev1.PodRunning, true)
		n.stop()
	})
}

// TestHostsFile writes the hosts file before a container starts that was missing when the
// sandbox was made, and tells of what keeps it from that.
func TestHostsFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod(1, corev1.RestartPolicyAlways, "x")
		file := filepath.Join(removal.Dirs(n.root, n.state, string(p.UID)).Files(), "hosts")
		if err := os.MkdirAll(file, 0o700); err != nil {
			t.Fatal(err)
		}
		n.boot(t, p)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodPending, false)
		if len(n.Calls("create")) > 0 || !n.saw("p1 Failed: container x: write its hosts file: ") {
			t.Errorf("%q, told %q", n.Calls(""), n.events)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "p1") {
			t.Errorf("%q, %v", text, err)
		}
		n.stop()
	})
}

// TestRecordLost tells of a pod whose page of the ledger a full disk has left empty, and
// keeps it.
func TestRecordLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod(1, corev1.RestartPolicyAlways, "x")
		n.boot(t, p)
		n.kill()
		if err := os.Truncate(filepath.Join(n.root, "agent", string(p.UID)+".json"), 0); err != nil {
			t.Fatal(err)
		}
		n.boot(t, p)
		n.expect(t, "p1", corev1.PodRunning, true)
		if got := n.Of("p1/x"); got != "create, start" || !n.saw("p1 RecordLost: ") {
			t.Errorf("%q, told %q", got, n.events)
		}
		if r, found, err := (ledger.Ledger{Root: n.root, Agent: "test"}).Read(p.UID); err != nil || !found || r.Name != "p1" {
			t.Errorf("%+v %v", r, err)
		}
		n.stop()
	})
}
