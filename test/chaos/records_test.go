package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/store"
	"fairlead.run/test/node"
)

// The file with all records is damaged or gone. The daemon starts, says so,
// keeps the file, and shows every pod that was there, so that nothing runs on
// unseen.
func TestTheFileOfRecordsIsLost(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spoil func(b []byte) []byte
		kept  bool
	}{
		"truncated":   {func(b []byte) []byte { return b[:len(b)/3] }, true},
		"overwritten": {func(b []byte) []byte { return []byte(strings.Repeat("nothing ", len(b)/8)) }, true},
		"deleted":     {func([]byte) []byte { return nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, "")
			n.Pull(node.Busybox)
			var all []victim
			for _, h := range node.Handlers {
				s, c := inhabited(n, h)
				all = append(all, victim{s, c, pidOf(c), "no record"})
				s, c = inhabited(n, h, node.SharedPID)
				all = append(all, victim{s, c, pidOf(c), "no record"})
			}
			empty := n.RunPod("crun", labelled)
			n.Kill(syscall.SIGKILL)
			path := filepath.Join(n.State, store.File)
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if bad := tc.spoil(whole); bad == nil {
				err = os.Remove(path)
			} else {
				err = os.WriteFile(path, bad, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			n.Start()
			allObserved(n)
			if aside, _ := filepath.Glob(path + ".damaged-*"); (len(aside) == 1) != tc.kept {
				t.Errorf("the damaged file was kept as %v", aside)
			}
			if said := strings.Contains(n.DaemonLog(), "file of pod records is damaged"); said != tc.kept {
				t.Errorf("the log says that the file is damaged: %v", said)
			}
			for _, v := range all {
				wantUnknown(n, v)
			}
			if r, d := inspect(n, empty.ID); d.State != "Unknown" || r.Status.Metadata.Name != empty.Config.Metadata.Name || r.Status.Labels[uidLabel] == "" {
				t.Errorf("the pod without containers: %+v, %v", d, r.Status.Metadata)
			}
			// A container that is killed now is seen to end.
			if err := syscall.Kill(all[0].pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if got := all[0].c.Wait(); got.State != runtimeapi.ContainerState_CONTAINER_EXITED || got.ExitCode != 137 {
				t.Errorf("%s, code %d, %s", got.State, got.ExitCode, got.Reason)
			}
			// Nothing is put on record that was not asked for: after one more start
			// it is all the same.
			n.Restart()
			allObserved(n)
			wantUnknown(n, all[1])
			n.RunPod("runc").Remove()
			n.RemoveAll()
			for _, v := range all {
				if lives(v.pid) {
					t.Error("a container of a removed pod runs on")
				}
			}
			// What is left of them all, the end of the test looks for.
		})
	}
}
