package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/removal"
	"fairlead.run/internal/node/volume/survey"
)

// writable is what a container has mounted of the pod's own folders, by its path there.
func (n *node) writable(name string) map[string]string {
	out := map[string]string{}
	for _, c := range n.Config(name) {
		for _, m := range c.GetMounts() {
			out[m.GetContainerPath()] = m.GetHostPath()
		}
	}
	return out
}

// TestFilesOnDisk has nothing on the tmpfs that a container may write without a limit, and
// counts that as the pod's. What it has written is given back with the end of the pod, and
// its last words are told.
func TestFilesOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod(1, corev1.RestartPolicyNever, "x")
		n.boot(t, p)
		has := n.writable("p1/x")
		for _, at := range []string{"/etc/hosts", corev1.TerminationMessagePathDefault} {
			file := has[at]
			if !strings.HasPrefix(file, n.root+"/") {
				t.Fatalf("%s is %q, and not on the disk: %q", at, file, has)
			}
			if err := os.WriteFile(file, []byte(strings.Repeat("y", 1<<20)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if used := n.Volumes(t.Context(), survey.Ask{})[p.UID]; used.Err != nil || len(used.Volumes) != 1 || !used.Volumes[0].Local || used.Volumes[0].Bytes < 2<<20 {
			t.Errorf("%+v", used)
		}
		n.Exit("p1/x", 0)
		time.Sleep(time.Minute)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodSucceeded, false)
		if w := n.of("p1").ContainerStatuses[0].State.Terminated; w == nil || w.Message != strings.Repeat("y", 4096) {
			t.Errorf("%+v", w)
		}
		if info, err := os.Stat(has[corev1.TerminationMessagePathDefault]); err != nil || info.Size() > 4096 {
			t.Errorf("last words are left: %v, %v", info, err)
		}
		if exists(t, has["/etc/hosts"]) {
			t.Error("the hosts file is left")
		}
		n.stop()
	})
}

// TestFilesBefore has containers go on that an agent has started which had their files on
// the tmpfs: their hosts file is kept up to date there, and their last words are found.
func TestFilesBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod(1, corev1.RestartPolicyAlways, "x")
		n.boot(t, p)
		n.kill()
		dirs := removal.Dirs(n.root, n.state, string(p.UID))
		if err := errors.Join(os.MkdirAll(filepath.Dir(dirs.Memory), 0o700), os.Rename(dirs.Files(), dirs.Memory)); err != nil {
			t.Fatal(err)
		}
		hosts := filepath.Join(dirs.Memory, "hosts")
		for file, text := range map[string]string{hosts: "stale", filepath.Join(dirs.Memory, "termination", "x.0"): "from before"} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		n.boot(t, p)
		n.expect(t, "p1", corev1.PodRunning, true)
		if got := n.Of("p1/x"); got != "create, start" {
			t.Errorf("the container was not left alone: %s", got)
		}
		n.Exit("p1/x", 1)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		if w := n.of("p1").ContainerStatuses[0].LastTerminationState.Terminated; w == nil || w.Message != "from before" {
			t.Errorf("%+v", w)
		}
		if text, err := os.ReadFile(hosts); err != nil || !strings.Contains(string(text), "p1") {
			t.Errorf("the hosts file from before: %q, %v", text, err)
		}
		for at, file := range n.writable("p1/x") {
			if filepath.Dir(file) == dirs.Memory {
				t.Errorf("%s of the next attempt is %s", at, file)
			}
		}
		n.Exit("p1/x", 1)
		time.Sleep(time.Hour)
		n.Exit("p1/x", 1)
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := names(t, filepath.Join(dirs.Memory, "termination")); len(got) > 0 {
			t.Errorf("%q is left of the first attempts", got)
		}
		n.Set(nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if exists(t, dirs.Memory) || exists(t, dirs.Disk) {
			t.Error("folders are left")
		}
		n.stop()
	})
}
