package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/failpoint"
	"fairlead.run/test/node"
)

// walker tells stories at each of which one place acts.
type walker struct {
	ground
	t      *testing.T
	n      *node.Node
	hit    string   // the file that the place makes when it acts
	images bool     // the story is about images
	before []string // what there was of images before
	known  []string // what earlier stories have left, and were told of
	// The monitor after a story about pods, and after one about images, in which
	// it opens less.
	ofPods, ofImages survivors
}

// arm makes a place act at its nth hit, once over all daemons that follow.
func (w *walker) arm(place, action string, nth int) {
	w.hit = filepath.Join(w.n.Dir, "hit")
	_ = os.Remove(w.hit)
	w.n.Env = []string{fmt.Sprintf("%s=%s=%s@%d!%s", failpoint.Env, place, action, nth, w.hit)}
}

func (w *walker) wasHit() bool {
	_, err := os.Stat(w.hit)
	return err == nil
}

// dead waits for the end of a daemon that a place has killed, and says whether
// there was one.
func (w *walker) dead() bool {
	if !w.wasHit() {
		return false
	}
	select {
	case <-w.n.Ended():
		return true
	case <-time.After(node.Patience):
		w.t.Fatal("the place was passed and the daemon lives")
		return false
	}
}

// tellKilled tells a story in which the daemon is killed once, somewhere. The
// caller starts the daemon again and repeats the request that it has no answer
// to. It returns that request's name.
func (w *walker) tellKilled(all []request) (cut string) {
	for _, r := range all {
		if r.name == endDaemon && cut == "" && w.diedLate() {
			cut = "what is done after the last answer"
			w.n.Start()
		}
		w.beforeTheEnd(r)
		err := r.do()
		if cut == "" && w.dead() {
			cut = r.name
			if r.name != startDaemon {
				w.n.Start()
			}
			if err == nil && r.name != startDaemon && r.name != endDaemon {
				continue // it died after it had answered
			}
			err = r.do()
		}
		if err != nil {
			w.t.Errorf("%s: %v", r.name, err)
		}
		if cut == r.name && r.name != endDaemon {
			w.wantInOrder("after the request came again")
		}
	}
	return cut
}

// tellFailed tells a story in which something fails once, somewhere. The caller
// repeats the request that failed. It returns the error. What the request makes
// may stay only where kept says that all was done.
func (w *walker) tellFailed(all []request, kept bool) (failed error) {
	for _, r := range all {
		w.beforeTheEnd(r)
		var before []string
		if r.makes && failed == nil {
			before = w.left()
		}
		err := r.do()
		if err != nil && failed == nil && w.wasHit() {
			failed = fmt.Errorf("%s: %w", r.name, err)
			if r.makes && !kept {
				w.wantNothing("of the request that failed", func() []string { return minus(w.left(), before) })
				w.wantInOrder("after the failure")
			}
			err = r.do()
		}
		if err != nil {
			w.t.Errorf("%s: %v", r.name, err)
		}
	}
	if failed == nil { // what failed unseen is made good by the next daemon at the latest
		w.n.Start()
		w.n.Kill(syscall.SIGTERM)
	}
	return failed
}

// diedLate waits until the daemon has done what it does after its last answer,
// and says whether it died of that.
func (w *walker) diedLate() bool {
	settled(func() []string {
		if w.wasHit() {
			return nil
		}
		return w.left()
	})
	return w.dead()
}

// beforeTheEnd looks for what is left of the story while the daemon still runs,
// since its end and the next start would take some of it away.
func (w *walker) beforeTheEnd(r request) {
	select {
	case <-w.n.Ended():
	default:
		if r.name == endDaemon {
			w.wantNothing("while the daemon runs", w.left)
			w.wantInOrder("before the daemon ends")
			monitor := &w.ofPods
			if w.images {
				monitor = &w.ofImages
			}
			monitor.wantNoMore(w.n.T, w.n, outerMonitor, innerMonitor)
		}
	}
}

// left is what a story may not leave: of images only where it was about them.
func (w *walker) left() []string {
	if w.images {
		return append(w.n.OfPods(), minus(w.n.OfImages(), w.before)...)
	}
	if w.mapped {
		return append(w.n.OfPods(), inUserNamespaces()...)
	}
	return w.n.OfPods()
}

// minus is a without what is in b.
func minus(a, b []string) []string {
	return slices.DeleteFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

// wantNothing fails the test over what is left, which is told once.
func (w *walker) wantNothing(when string, what func() []string) {
	w.t.Helper()
	left := settled(func() []string { return minus(what(), w.known) })
	if len(left) > 0 {
		w.t.Errorf("left %s:\n%s", when, strings.Join(left, "\n"))
		w.known = append(w.known, left...)
	}
}

// wantInOrder fails the test where the host is not as the records say.
func (w *walker) wantInOrder(when string) {
	w.t.Helper()
	w.wantNothing("for an audit to find "+when, func() []string { return told(audit(w.t, w.n, adminv1.FsckRequest{}).Findings) })
}

// finish leaves the node as it was before the story, with no daemon.
func (w *walker) finish() {
	w.n.Env = nil
	select {
	case <-w.n.Ended():
	default:
		w.n.RemoveAll()
		w.n.Kill(syscall.SIGTERM)
	}
	w.wantNothing("after the story", func() []string { return append(w.n.Left(), w.left()...) })
	if w.t.Failed() { // the recovery of a pod that is left would pass the next story's place
		w.n.Start()
		w.n.RemoveAll()
		w.n.Kill(syscall.SIGTERM)
	}
}
