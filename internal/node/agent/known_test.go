package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/removal"
	"fairlead.run/internal/node/source"
)

// reboot ends the agent and all that runs.
func (n *node) reboot() {
	n.kill()
	n.Reboot()
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return err == nil
}

// TestReboot leaves nothing of pods that nobody wants when the machine is up again,
// neither their volumes nor what was known of them. What is another agent's stays.
func TestReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		stays, goes, ended := pod(1, corev1.RestartPolicyAlways, "x"), pod(2, corev1.RestartPolicyAlways, "x"), pod(3, corev1.RestartPolicyNever, "x")
		goes.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		n.boot(t, stays, goes, ended)
		n.Exit("p3/x", 0)
		synctest.Wait()
		folder := removal.Dirs(n.root, n.state, string(goes.UID)).Disk
		if !exists(t, folder) {
			t.Fatal("the volume is not where it is looked for")
		}
		other := filepath.Join(n.root, "agent", string(uid(9))+".json")
		if err := os.WriteFile(other, []byte(`{"agent":"another","name":"p9"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		n.reboot()
		n.boot(t, stays)
		n.expect(t, "p1", corev1.PodRunning, true)
		slices.Sort(n.gone)
		if !slices.Equal(n.gone, []string{"p2", "p3"}) || exists(t, folder) {
			t.Errorf("gone: %q, its volume is there: %v", n.gone, exists(t, folder))
		}
		for id, there := range map[types.UID]bool{stays.UID: true, goes.UID: false, ended.UID: false, uid(9): true} {
			if exists(t, filepath.Join(n.root, "agent", string(id)+".json")) != there {
				t.Errorf("the record of %s: there is one: %v", id, !there)
			}
		}
		n.stop()
	})
}

// TestUnread ends no pod of a source that could not be read, and does so when it was.
func TestUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		fromAPI, goes, static := pod(1, corev1.RestartPolicyAlways, "x"), pod(2, corev1.RestartPolicyAlways, "x"), pod(3, corev1.RestartPolicyAlways, "x")
		static.Annotations = map[string]string{source.SourceAnnotation: source.File}
		old := pod(4, corev1.RestartPolicyAlways, "x")
		old.Annotations = static.Annotations
		n.boot(t, fromAPI, goes, old)
		n.kill()
		n.unread = []string{source.API}
		n.boot(t, static)
		n.expect(t, "p3", corev1.PodRunning, true)
		if !slices.Equal(n.gone, []string{"p4"}) || len(n.Sandboxes()) != 3 || !n.Has(string(goes.UID)) || !n.Has("no pod") {
			t.Errorf("gone: %q, sandboxes %v", n.gone, n.Sandboxes())
		}
		n.Set([]*corev1.Pod{static, fromAPI})
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		if !slices.Equal(n.gone, []string{"p4", "p2"}) || len(n.Sandboxes()) != 2 || n.Calls("stop p2/x") == nil || len(n.Calls("create p1/x")) != 1 {
			t.Errorf("gone: %q, calls %q", n.gone, n.Calls(""))
		}
		if n.Has(string(goes.UID)) || n.Has("no pod") || !n.Has(string(static.UID)) {
			t.Error("it does not know which pods there are")
		}
		n.stop()
	})
}

// TestNamesOfUnread starts no pod while one of its name runs on that an earlier agent has
// left: another one of the same source takes its place in order, and of another source it
// waits until it is known what is to become of the first.
func TestNamesOfUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		from := func(p *corev1.Pod, kind string) *corev1.Pod {
			p.Annotations = map[string]string{source.SourceAnnotation: kind}
			return p
		}
		again := func(number int, as *corev1.Pod) *corev1.Pod {
			p := pod(number, corev1.RestartPolicyAlways, "x")
			p.Name = as.Name
			return p
		}
		changed, moved := from(pod(1, corev1.RestartPolicyAlways, "x"), source.File), from(pod(2, corev1.RestartPolicyAlways, "x"), source.Address)
		n.boot(t, changed, moved)
		n.kill()
		n.unread = []string{source.File, source.Address}
		stopped := make(chan struct{})
		n.Hang("stop p1/x in 30s", stopped)
		wanted := []*corev1.Pod{from(again(3, changed), source.File), from(again(4, moved), source.File)}
		n.boot(t, wanted...)
		if n := len(n.Sandboxes()); n != 2 {
			t.Fatalf("%d pods run of two names", n)
		}
		close(stopped)
		synctest.Wait()
		if got := n.Of("p1/x"); got != "create, start, stop in 30s, create, start" {
			t.Errorf("p1: %s", got)
		}
		if got := n.Of("p2/x"); got != "create, start" || !n.saw("p2 WaitingForPredecessor") || !n.saw("its source (http) was not read") {
			t.Errorf("p2: %s, told %q", got, n.events)
		}
		n.Set(wanted)
		synctest.Wait()
		if got := n.Of("p2/x"); got != "create, start, stop in 30s, create, start" {
			t.Errorf("p2: %s", got)
		}
		n.stop()
	})
}

// TestFinished keeps the status of a pod whose containers were removed after its end.
func TestFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p, q := pod(1, corev1.RestartPolicyNever, "x"), pod(2, corev1.RestartPolicyAlways, "x")
		for _, p := range []*corev1.Pod{p, q} {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "busybox"}}}}
		}
		n.boot(t, p, q)
		if n.Finished(string(p.UID)) || !slices.Contains(n.VolumeImages(), "docker.io/library/busybox:latest") {
			t.Errorf("images of volumes: %q", n.VolumeImages())
		}
		n.Exit("p1/x", 3)
		synctest.Wait()
		if !n.Finished(string(p.UID)) || n.Finished(string(q.UID)) || n.Finished("no pod") {
			t.Error("it does not know which pods have finished")
		}
		for _, c := range n.Runtime.Containers() {
			if c.State != runtimeapi.ContainerState_CONTAINER_EXITED {
				continue
			}
			if _, err := n.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: c.Id}); err != nil {
				t.Error(err)
			}
		}
		n.wake(string(p.UID))
		n.Touch(p.UID)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodFailed, false)
		if c := n.of("p1").ContainerStatuses; len(c) != 1 || c[0].State.Terminated == nil || c[0].State.Terminated.ExitCode != 3 {
			t.Errorf("%+v", c)
		}
		if len(n.Calls("create p1/x")) != 1 {
			t.Error("it was run again")
		}
		n.stop()
	})
}

// TestStrays removes what is left of a pod of which nothing can be read any more, once it
// is clear that nobody wants it. What others may have made since the boot stays, and what
// is no pod's.
func TestStrays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		wanted, goes, apart := pod(1, corev1.RestartPolicyAlways, "x"), pod(2, corev1.RestartPolicyAlways, "x"), pod(3, corev1.RestartPolicyAlways, "x")
		n.boot(t, wanted, goes, apart)
		n.reboot()
		disk := func(id string) string { return removal.Dirs(n.root, n.state, id).Disk }
		page := func(id types.UID) string { return filepath.Join(n.root, "agent", string(id)+".json") }
		long := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC) // before this machine was started
		for _, p := range []*corev1.Pod{wanted, goes, apart} {
			if err := os.WriteFile(page(p.UID), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range []string{string(uid(8)), "lost+found"} {
			if err := os.MkdirAll(filepath.Join(disk(id), "volumes"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range []string{string(wanted.UID), string(goes.UID), string(uid(8)), "lost+found"} {
			if err := os.Chtimes(disk(id), long, long); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(removal.Dirs(n.root, n.state, id).Memory); err != nil {
				t.Fatal(err)
			}
		}
		n.unread = []string{source.File}
		n.boot(t, wanted)
		if !exists(t, disk(string(goes.UID))) {
			t.Error("it may be wanted by a source that was not read")
		}
		n.Set([]*corev1.Pod{wanted})
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		for id, there := range map[string]bool{string(wanted.UID): true, string(goes.UID): false, string(apart.UID): true, string(uid(8)): false, "lost+found": true} {
			if exists(t, disk(id)) != there {
				t.Errorf("the folder of %s: there is one: %v", id, !there)
			}
		}
		if exists(t, page(goes.UID)) {
			t.Error("what cannot be read stays")
		}
		n.stop()
	})
}
