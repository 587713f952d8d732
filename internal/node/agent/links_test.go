package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestLogLinks has a link to the log of each attempt, also of one that an agent before this
// one has started.
func TestLogLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod(1, corev1.RestartPolicyAlways, "x")
		n.boot(t, p) // one that makes no links
		n.kill()
		n.links = filepath.Join(t.TempDir(), "containers")
		linked := func() (out []string) {
			for _, name := range names(t, n.links) {
				to, err := os.Readlink(filepath.Join(n.links, name))
				if _, lost := os.Stat(to); err != nil || lost != nil {
					t.Errorf("%s leads to %q: %v, %v", name, to, err, lost)
				}
				out = append(out, name)
			}
			return out
		}
		var want []string
		add := func() {
			s := n.of("p1").ContainerStatuses[0]
			want = append(want, "p1_default_x-"+s.ContainerID[len("fake://"):]+".log")
			slices.Sort(want)
		}
		n.boot(t, p)
		add()
		if got := linked(); !slices.Equal(got, want) {
			t.Errorf("of one that was found: %q, want %q", got, want)
		}
		n.Exit("p1/x", 1)
		time.Sleep(time.Second)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		add()
		if got := linked(); !slices.Equal(got, want) {
			t.Errorf("of the next attempt: %q, want %q", got, want)
		}
		n.stop()
	})
}
