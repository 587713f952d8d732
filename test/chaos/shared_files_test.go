package chaos

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"

	"fairlead.run/test/node"
)

// stateLimit is the size of the tmpfs that the state is on, much less than what
// the containers write.
const stateLimit = "size=8m"

// What a container writes into the pod's hosts file goes to the disk. The state
// of all pods is in memory, and whoever could fill that would stop the node.
func TestSharedFilesFillNoState(t *testing.T) {
	small := t.TempDir()
	if err := syscall.Mount("state", small, "tmpfs", 0, stateLimit); err != nil {
		t.Skipf("needs root, to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(small, 0); err != nil {
			t.Errorf("unmount the state: %v", err)
		}
	})
	n := node.Start(t, "", func(n *node.Node) error {
		n.State = filepath.Join(small, "run")
		return nil
	})
	n.Pull(node.Busybox)
	for _, h := range node.Handlers {
		s, c := inhabited(n, h)
		const script = "for f in hosts hostname resolv.conf; do dd if=/dev/zero of=/etc/$f bs=1M count=12 2>/dev/null && stat -c %s /etc/$f; done"
		if got := strings.Fields(c.Exec("sh", "-c", script)); len(got) != 3 || got[0] != "12582912" {
			t.Errorf("%s: written %v", h, got)
		}
		for _, name := range []string{"hosts", "hostname", "resolv.conf"} {
			if info, err := os.Stat(filepath.Join(n.Root, "pods", s.ID, name)); err != nil || info.Size() != 12<<20 {
				t.Errorf("%s: %s on disk: %v, %v", h, name, info, err)
			}
		}
	}
	other, _ := inhabited(n, "")
	other.Remove()
	n.RemoveAll()
}

// Pods of a build that kept these files in the state folder have them there to
// their end, and so do the containers that they get later.
func TestSharedFilesOfAnEarlierBuild(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	s, c := inhabited(n, "")
	pid := pidOf(c)
	n.Kill(syscall.SIGKILL)
	disk, state := filepath.Join(n.Root, "pods", s.ID), filepath.Join(n.State, "pods", s.ID)
	shell(t, "mv "+disk+"/* "+state+"; rmdir "+disk)
	editRecords(n, func(pods *bbolt.Bucket) error { return moveBack(pods, s.ID) })
	n.Start()
	allObserved(n)
	wantInOrder(t, n)
	if now := pidOf(c); now != pid {
		t.Errorf("the container was process %d and is %d", pid, now)
	}
	later := s.Start(sleeper())
	if got, want := later.Exec("cat", "/etc/hosts"), s.IPs()[0]; !strings.Contains(got, want) {
		t.Errorf("a new container sees %q without %s", got, want)
	}
	if _, err := os.Stat(disk); !os.IsNotExist(err) {
		t.Errorf("%s: %v", disk, err)
	}
	s.Remove()
	wantInOrder(t, n)
}

// moveBack makes a record as a build without "files" wrote it.
func moveBack(pods *bbolt.Bucket, id string) error {
	var r map[string]any
	if err := json.Unmarshal(pods.Get([]byte(id)), &r); err != nil {
		return err
	}
	delete(r["sandbox"].(map[string]any), "files")
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return pods.Put([]byte(id), b)
}
