package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/removal"
)

// TestOldLogs has a container that crashes again and again keep the logs and last words
// of its last two attempts only, also where an earlier agent has left more.
func TestOldLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod(1, corev1.RestartPolicyAlways, "x")
		dirs := removal.Dirs(n.root, n.state, string(p.UID))
		logs, words := filepath.Join(dirs.Disk, "logs", "x"), filepath.Join(dirs.Files(), "termination")
		crash := func(attempt int) {
			for _, name := range []string{"%d.log", "%d.log.20260102-030405", "%d.log.20260102-030400.gz"} {
				if err := os.WriteFile(filepath.Join(logs, fmt.Sprintf(name, attempt)), []byte("text"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			n.Exit("p1/x", 1)
			time.Sleep(10 * time.Minute)
			synctest.Wait()
		}
		n.boot(t, p)
		for i := range 4 {
			crash(i)
		}
		n.expect(t, "p1", corev1.PodRunning, true)
		want := []string{"3.log", "3.log.20260102-030400.gz", "3.log.20260102-030405", "4.log"} // the last one is the runtime's
		if got := names(t, logs); !slices.Equal(got, want) {
			t.Errorf("%q is left of logs, and not %q", got, want)
		}
		if got := names(t, words); !slices.Equal(got, []string{"x.3", "x.4"}) {
			t.Errorf("%q is left of last words", got)
		}
		n.kill()
		if err := os.WriteFile(filepath.Join(logs, "0.log"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		n.boot(t, p)
		if got := names(t, logs); !slices.Equal(got, want) {
			t.Errorf("%q is left of logs for the next agent, and not %q", got, want)
		}
		n.stop()
	})
}

// TestLeftoverStays tells, once, of what is left of pods that nobody wants and cannot be
// removed: no event of those would find a reader.
func TestLeftoverStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.boot(t, pod(1, corev1.RestartPolicyAlways, "x"))
		n.kill()
		folder := removal.Dirs(n.root, n.state, string(uid(2))).Disk
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(folder, time.Unix(1, 0), time.Unix(1, 0)); err != nil { // long before the machine was started
			t.Fatal(err)
		}
		n.tree.stuck = errors.New("device or resource busy")
		n.boot(t)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		for _, name := range []string{"default/p1 (" + string(uid(1)) + ")", string(uid(2))} {
			want := " LeftoverNotRemoved: What an agent before this one has left of pod " + name + " cannot be removed, which is tried again; until then it takes room on the node: remove the pod: device or resource busy"
			if n.times(want) != 1 {
				t.Errorf("there is not one event %q in %q", want, n.events)
			}
		}
		n.tree.mu.Lock()
		n.tree.stuck = nil
		n.tree.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if exists(t, folder) || len(n.Sandboxes()) > 0 {
			t.Errorf("%q is left, and %v", folder, n.Sandboxes())
		}
		n.stop()
	})
}

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		out = append(out, f.Name())
	}
	return out
}
