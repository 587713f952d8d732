package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// tree is a cgroup v2 hierarchy made of plain files, whose counts go up at
// every level as the kernel's do.
type tree struct {
	t    *testing.T
	root string
	*Ledger
}

func newTree(t *testing.T) *tree {
	t.Helper()
	tr := &tree{t: t, root: t.TempDir()}
	tr.restart()
	return tr
}

// restart is a new process that has only what Rejoin tells it.
func (tr *tree) restart() {
	if tr.Ledger != nil {
		_ = unix.Close(tr.watches.fd)
	}
	tr.Ledger = newLedger(hierarchy{unified: true, root: "/", mountPoint: tr.root})
	fd := tr.watches.fd
	tr.t.Cleanup(func() { _ = unix.Close(fd) })
}

func (tr *tree) make(path string) {
	tr.t.Helper()
	if err := os.MkdirAll(tr.root+path, 0o755); err != nil {
		tr.t.Fatal(err)
	}
	tr.write(path, 0)
}

func (tr *tree) write(path string, n int) {
	tr.t.Helper()
	if err := os.WriteFile(filepath.Join(tr.root, path, eventsFile), fmt.Appendf(nil, "max 7\noom_kill %d\n", n), 0o600); err != nil {
		tr.t.Fatal(err)
	}
}

// oom kills a process of the cgroup.
func (tr *tree) oom(path string) {
	tr.t.Helper()
	for ; path != "/"; path = filepath.Dir(path) {
		n, err := tr.memory.kills(tr.root + path)
		if err != nil {
			tr.t.Fatal(err)
		}
		tr.write(path, n+1)
	}
}

func (tr *tree) remove(paths ...string) {
	tr.t.Helper()
	for _, path := range paths {
		if err := os.RemoveAll(tr.root + path); err != nil {
			tr.t.Fatal(err)
		}
	}
}

// run is a container that has started and been seen.
func (tr *tree) run(id string) string {
	tr.t.Helper()
	path := "/pod/" + id
	tr.Join(id, path)
	tr.make(path)
	tr.Watch(id, "")
	return path
}

// settle expects that a container ends, killed, and which way.
func (tr *tree) settle(id string, killed, want bool) Verdict {
	tr.t.Helper()
	v := tr.Settle(id, killed)
	if v.OOMKilled != want {
		tr.t.Errorf("%s: %+v", id, v)
	}
	return v
}

const byKill, byItself = true, false

func TestLedgerReadsTheCount(t *testing.T) {
	tr := newTree(t)
	tr.make("/pod")
	a := tr.run("a")
	tr.run("b")
	tr.oom(a)
	v := tr.settle("a", byItself, true)
	if v.Elsewhere != 1 || !slices.Equal(v.Others, []string{"b"}) {
		t.Errorf("%+v", v)
	}
	tr.remove(a, "/pod/b")
	tr.settle("b", byKill, false)
	if len(tr.members)+len(tr.families)+len(tr.watches.ids)+len(tr.watches.nos) != 0 {
		t.Errorf("kept: %+v", tr.Ledger)
	}
	tr.settle("b", byKill, false) // nobody knows it any more
}

func TestLedgerOfAGoneCgroup(t *testing.T) {
	for _, tt := range []struct {
		name   string
		oom    string // whose process is killed for memory
		killed bool   // how a ended
		want   bool
	}{
		{"its own", "/pod/a", byKill, true},
		{"one of its children", "/pod/a", byItself, true},
		{"a living neighbour's", "/pod/b", byKill, false},
		{"nobody's", "", byKill, false},
	} {
		for _, watched := range []bool{true, false} { // it may have ended before it was seen
			t.Run(fmt.Sprint(tt.name, watched), func(t *testing.T) {
				tr := newTree(t)
				tr.make("/pod")
				tr.write("/pod", 5) // of the time before
				tr.run("b")
				tr.oom("/pod/b") // and before a
				if watched {
					tr.run("a")
				} else {
					tr.Join("a", "/pod/a")
					tr.make("/pod/a")
				}
				if tt.oom != "" {
					tr.oom(tt.oom)
				}
				tr.remove("/pod/a")
				tr.settle("a", tt.killed, tt.want)
				tr.remove("/pod/b")
				tr.settle("b", byKill, true)
			})
		}
	}
}

// TestLedgerOfTheFirst is about a pod whose own cgroup is not there yet.
func TestLedgerOfTheFirst(t *testing.T) {
	tr := newTree(t)
	tr.Join("a", "/pod/a")
	tr.make("/pod")
	tr.make("/pod/a")
	tr.oom("/pod/a")
	tr.remove("/pod/a")
	tr.settle("a", byKill, true)
}

// TestLedgerOfAKillBeingCounted has one begin while the kernel has counted a
// neighbour's loss below and not yet above.
func TestLedgerOfAKillBeingCounted(t *testing.T) {
	tr := newTree(t)
	tr.make("/pod")
	tr.run("b")
	tr.write("/pod/b", 1)
	tr.run("a")
	tr.write("/pod", 1)
	tr.remove("/pod/a")
	tr.settle("a", byKill, false)
}

// TestLedgerOfANewNeighbour has one begin before the end of another is known.
func TestLedgerOfANewNeighbour(t *testing.T) {
	tr := newTree(t)
	tr.make("/pod")
	tr.run("a")
	tr.oom("/pod/a")
	tr.remove("/pod/a")
	tr.run("b")
	tr.settle("a", byKill, true)
	tr.remove("/pod/b")
	tr.settle("b", byKill, false)
}

// TestLedgerTellsTwoApart is about containers that are gone at once.
func TestLedgerTellsTwoApart(t *testing.T) {
	for name, first := range map[string]string{"the victim": "a", "its neighbour": "b"} {
		t.Run(name+" first", func(t *testing.T) {
			tr := newTree(t)
			tr.make("/pod")
			tr.run("a")
			tr.run("b")
			tr.oom("/pod/a")
			tr.remove("/pod/a", "/pod/b")
			tr.settle(first, byKill, first == "a")
			if first == "a" {
				tr.settle("b", byKill, false)
			} else {
				tr.settle("a", byKill, true)
			}
		})
	}
	t.Run("by how they ended", func(t *testing.T) {
		tr := newTree(t)
		tr.make("/pod")
		for _, id := range []string{"a", "b"} { // unseen
			tr.Join(id, "/pod/"+id)
			tr.make("/pod/" + id)
		}
		tr.oom("/pod/a")
		tr.remove("/pod/a", "/pod/b")
		tr.settle("b", byItself, false)
		tr.settle("a", byKill, true)
	})
	t.Run("neither", func(t *testing.T) {
		tr := newTree(t)
		tr.make("/pod")
		for _, id := range []string{"a", "b"} { // unseen
			tr.Join(id, "/pod/"+id)
			tr.make("/pod/" + id)
		}
		tr.remove("/pod/a", "/pod/b")
		tr.settle("b", byKill, false)
		tr.settle("a", byKill, false)
	})
	t.Run("one of them known", func(t *testing.T) {
		tr := newTree(t)
		tr.make("/pod")
		for _, id := range []string{"a", "b", "c"} { // unseen
			tr.Join(id, "/pod/"+id)
			tr.make("/pod/" + id)
			tr.oom("/pod/" + id)
		}
		tr.remove("/pod/a", "/pod/c")
		tr.settle("a", byKill, true) // which takes a look at b
		tr.remove("/pod/b")
		tr.settle("b", byKill, true)
		tr.settle("c", byKill, true)
	})
	t.Run("both", func(t *testing.T) {
		tr := newTree(t)
		tr.make("/pod")
		tr.run("a")
		tr.run("b")
		tr.oom("/pod/a")
		tr.oom("/pod/b")
		tr.remove("/pod/a", "/pod/b")
		tr.settle("b", byKill, true)
		tr.settle("a", byKill, true)
	})
}

// TestLedgerAwaitsTheNews is about a change that the kernel has made and not
// announced yet.
func TestLedgerAwaitsTheNews(t *testing.T) {
	tr := newTree(t)
	tr.make("/pod")
	tr.run("a")
	tr.run("b")
	tr.oom("/pod/a")
	// Put off what would have been announced: a watch set later has not seen it.
	for _, id := range []string{"a", "b"} {
		if err := tr.watches.add(tr.root+"/pod/"+id, id); err != nil {
			t.Fatal(err)
		}
	}
	tr.watches.drain()
	late, err := os.OpenFile(tr.root+"/pod/a/"+eventsFile, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	tr.remove("/pod/a", "/pod/b")
	told := make(chan struct{})
	go func() {
		defer close(told)
		time.Sleep(50 * time.Millisecond) // most likely Settle waits by then; if not, it need not
		_, _ = late.WriteString("\n")
	}()
	tr.settle("b", byKill, false)
	<-told
	tr.settle("a", byKill, true)
}

func TestLedgerOverARestart(t *testing.T) {
	tr := newTree(t)
	tr.make("/pod")
	kept := map[string]int{}
	for _, id := range []string{"a", "b", "c"} {
		kept[id] = tr.Join(id, "/pod/"+id)
		tr.make("/pod/" + id)
		tr.Watch(id, "")
	}
	rejoin := func(ids ...string) {
		tr.restart()
		for _, id := range ids {
			tr.Rejoin(id, "/pod/"+id, kept[id])
		}
		for _, id := range ids {
			tr.Watch(id, "")
		}
	}
	tr.oom("/pod/a")
	tr.remove("/pod/a")
	// The process dies when it has told one of the two.
	kept["b"] = tr.settle("a", byKill, true).Elsewhere
	rejoin("b", "a", "c")
	v := tr.settle("a", byKill, true)
	kept["b"], kept["c"] = v.Elsewhere, v.Elsewhere
	rejoin("b", "c")
	tr.remove("/pod/b")
	tr.settle("b", byKill, false)
	// One that happens while there is no process.
	rejoin("c")
	tr.oom("/pod/c")
	tr.remove("/pod/c")
	rejoin("c")
	tr.settle("c", byKill, true)
}

// TestLedgerKnowsWhatItHasSeen is about one that goes on after it has lost a
// process, and is gone at the same time as another.
func TestLedgerKnowsWhatItHasSeen(t *testing.T) {
	tr := newTree(t)
	tr.make("/pod")
	tr.run("a")
	tr.run("b")
	tr.oom("/pod/a")
	tr.restart()
	for _, id := range []string{"a", "b"} {
		tr.Rejoin(id, "/pod/"+id, 0)
		tr.Watch(id, "")
	}
	tr.remove("/pod/a", "/pod/b")
	tr.settle("b", byKill, false)
	tr.settle("a", byItself, true)
}

func TestWatches(t *testing.T) {
	tr := newTree(t)
	tr.make("/pod/a")
	add := func() {
		t.Helper()
		if err := tr.watches.add(tr.root+"/pod/a", "a"); err != nil {
			t.Fatal(err)
		}
	}
	add()
	tr.remove("/pod/a")
	tr.make("/pod/a")
	tr.watches.drain()
	add()
	if len(tr.watches.ids) != 1 {
		t.Errorf("watches of one container: %v", tr.watches.ids)
	}
	tr.write("/pod/a", 1)
	if ids, all := tr.watches.drain(); !ids["a"] || all {
		t.Errorf("after a change: %v %t", ids, all)
	}
	tr.write("/pod/a", 2)
	if ids, _ := tr.watches.drain(); len(ids) != 0 {
		t.Errorf("it is announced once, and came again: %v", ids)
	}
	if err := tr.watches.add(tr.root+"/nowhere", "b"); err == nil {
		t.Error("what is not there is watched")
	}
}

// TestLedgerOfASharedParent is about a cgroup in which there are others too,
// such as system.slice.
func TestLedgerOfASharedParent(t *testing.T) {
	for _, killed := range []bool{byItself, byKill} {
		tr := newTree(t)
		tr.make("/pod")
		tr.make("/pod/service")
		tr.oom("/pod/service")
		tr.run("a")
		tr.oom("/pod/service")
		tr.run("c") // what happened to others before does not count
		tr.remove("/pod/c")
		tr.settle("c", killed, false)
		tr.run("b")
		tr.oom("/pod/service")
		tr.remove("/pod/b")
		tr.settle("b", killed, killed) // it cannot be told from a's; who ends by itself is spared
	}
}

// TestLedgerReadsAtOneMoment has a neighbour lose processes all the time, of
// which both counts are seen to change at once.
func TestLedgerReadsAtOneMoment(t *testing.T) {
	tr := newTree(t)
	for _, path := range []string{"/pod", "/pod/b"} {
		tr.make(path)
		file := filepath.Join(tr.root, path, eventsFile)
		if err := errors.Join(os.Remove(file), os.Symlink(tr.root+"/now/"+strings.ReplaceAll(path[1:], "/", "."), file)); err != nil {
			t.Fatal(err)
		}
	}
	version, own := 0, 0
	show := func() error {
		version++
		next := fmt.Sprintf("%s/%d", tr.root, version)
		return errors.Join(
			os.MkdirAll(next, 0o755),
			os.WriteFile(next+"/pod.b", fmt.Appendf(nil, "oom_kill %d\n", version), 0o600),
			os.WriteFile(next+"/pod", fmt.Appendf(nil, "oom_kill %d\n", version+own), 0o600),
			os.Symlink(next, next+".link"), os.Rename(next+".link", tr.root+"/now"))
	}
	if err := show(); err != nil {
		t.Fatal(err)
	}
	var turn sync.Mutex
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			turn.Lock()
			if err := show(); err != nil {
				t.Error(err)
			}
			turn.Unlock()
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	tr.Join("b", "/pod/b")
	for range 100 {
		tr.Join("a", "/pod/a")
		turn.Lock()
		own++
		if err := show(); err != nil {
			t.Error(err)
		}
		turn.Unlock()
		tr.settle("a", byKill, true)
	}
	close(stop)
	<-done
}

func TestLedgerOfStartsThatFail(t *testing.T) {
	tr := newTree(t)
	tr.make("/pod")
	tr.run("a")
	tr.Join("b", "/pod/b")
	tr.Join("b", "/pod/b") // again
	tr.Leave("b")
	tr.oom("/pod/a")
	tr.remove("/pod/a")
	tr.settle("a", byItself, true)
	if tr.Join("c", "") != 0 || tr.Join("d", "/") != 0 || len(tr.members) != 0 {
		t.Errorf("%+v", tr.members)
	}
}

func TestFindMemory(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(root+"/cgroup.controllers", []byte("cpu memory\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	v2 := hierarchy{unified: true, mountPoint: root}
	v1 := hierarchy{controllers: []string{"cpu", "memory"}, mountPoint: "/m"}
	bare := hierarchy{unified: true, mountPoint: "/nowhere"}
	for _, tt := range []struct {
		all  []hierarchy
		want string
	}{{[]hierarchy{v2}, root}, {[]hierarchy{bare, v1}, "/m"}, {[]hierarchy{v2, v1}, "/m"}, {[]hierarchy{bare}, ""}} {
		h, err := memory(tt.all)
		if h.mountPoint != tt.want || (tt.want == "") != errors.Is(err, errdefs.ErrNotFound) {
			t.Errorf("%v: %v %v", tt.all, h, err)
		}
	}
}

func TestPathIn(t *testing.T) {
	l := newLedger(hierarchy{unified: true, root: "/", mountPoint: "/x"})
	defer func() { _ = unix.Close(l.watches.fd) }()
	for text, want := range map[string]string{
		"0::/a/b\n": "/a/b", "0::/\n": "", "0::/a/b (deleted)\n": "", "": "",
	} {
		if got := l.PathIn(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestKilledBeforeItsEndIsTold(t *testing.T) {
	tr := newTree(t)
	tr.make("/pod")
	path := tr.run("a")
	tr.run("b")
	if tr.Killed("a") || tr.Killed("nobody") {
		t.Error("nothing was killed")
	}
	tr.oom(path)
	if !tr.Killed("a") || tr.Killed("b") {
		t.Errorf("a %v, b %v", tr.Killed("a"), tr.Killed("b"))
	}
	if v := tr.Settle("a", true); !v.OOMKilled {
		t.Errorf("%+v", v)
	}
	if !tr.Killed("a") {
		t.Error("it is forgotten")
	}
	for i := range 2 * remembered {
		id := fmt.Sprint("c", i)
		tr.oom(tr.run(id))
		tr.Settle(id, true)
	}
	if tr.Killed("a") || len(tr.lost) != remembered {
		t.Errorf("%d are known", len(tr.lost))
	}
}
