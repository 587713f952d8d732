package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tree1 is a cgroup v1 hierarchy, with a file that stands for the host's count:
// others lose processes on the real one at any time.
type tree1 struct {
	tree
	host  string
	kills int
}

// newFiles1 is one of plain files, in which the kernel announces nothing.
func newFiles1(t *testing.T) *tree1 {
	return newTree1(t, t.TempDir(), hierarchy{controllers: []string{"memory"}, root: "/"})
}

// newTree1 is one below a folder.
func newTree1(t *testing.T, root string, h hierarchy) *tree1 {
	t.Helper()
	tr := &tree1{tree: tree{t: t, root: root}, host: filepath.Join(t.TempDir(), "vmstat")}
	h.mountPoint = root
	tr.restart(h)
	tr.losses(7) // of the time before
	return tr
}

func (tr *tree1) restart(h hierarchy) {
	if tr.Ledger != nil {
		_ = unix.Close(tr.watches.fd)
		for _, m := range tr.members {
			m.signals.close()
		}
	}
	l := newLedger(h)
	tr.t.Cleanup(func() { _ = unix.Close(l.watches.fd) })
	l.host = tr.host
	tr.Ledger = l
}

// losses are processes that the host has killed.
func (tr *tree1) losses(n int) {
	tr.t.Helper()
	tr.kills += n
	if err := os.WriteFile(tr.host, fmt.Appendf(nil, "nr_free_pages 9\noom_kill %d\n", tr.kills), 0o600); err != nil {
		tr.t.Fatal(err)
	}
}

// make1 makes a cgroup of plain files.
func (tr *tree1) make1(path string, n int) {
	tr.t.Helper()
	if err := os.MkdirAll(tr.root+path, 0o755); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.WriteFile(tr.root+path+"/"+oomFile, fmt.Appendf(nil, "under_oom 0\noom_kill %d\n", n), 0o600); err != nil {
		tr.t.Fatal(err)
	}
}

func TestVersion1ReadsTheCount(t *testing.T) {
	tr := newFiles1(t)
	tr.Join("a", "/pod/a")
	tr.Join("b", "/other/b")
	tr.make1("/pod/a", 2)
	tr.make1("/other/b", 0)
	tr.losses(2)
	tr.Watch("a", "")
	tr.Watch("b", "")
	v := tr.settle("a", byItself, true)
	if v.Elsewhere != 9 || !slices.Equal(v.Others, []string{"b"}) {
		t.Errorf("%+v", v)
	}
	tr.settle("b", byKill, false)
}

// TestVersion1Below has the process in a cgroup below the one that its start named.
func TestVersion1Below(t *testing.T) {
	for _, tt := range []struct {
		name, cgroups string
		want          bool
	}{
		{"below", "9:name=systemd:/pod/a\n4:memory:/pod/a/container\n", true},
		{"at it", "4:memory:/pod/a\n", false},
		{"beside it", "4:memory:/pod/ab/container\n", false},
		{"not known", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := newFiles1(t)
			for round := range 2 { // the second is that of another monitor
				if round == 0 {
					tr.Join("a", "/pod/a")
				} else {
					kept := tr.elsewhere()
					tr.restart(tr.memory)
					tr.Rejoin("a", "/pod/a", kept)
				}
				tr.make1("/pod/a", 0)
				tr.make1("/pod/a/container", 1)
				tr.make1("/pod/ab/container", 1)
				tr.Watch("a", tt.cgroups)
			}
			tr.settle("a", byKill, tt.want)
		})
	}
}

// TestVersion1Unwatched is about containers of which only the host's count is
// left, as they ended before they were seen, or while nobody looked.
func TestVersion1Unwatched(t *testing.T) {
	for _, tt := range []struct {
		name         string
		before, then int
		neighbour    int // those of the losses then that a neighbour knows of
		killed, want bool
	}{
		{"its own", 0, 1, 0, byKill, true},
		{"of one that ended by itself", 0, 1, 0, byItself, false},
		{"nobody's", 0, 0, 0, byKill, false},
		{"of the time before", 3, 0, 0, byKill, false},
		{"a neighbour's", 0, 1, 1, byKill, false},
		{"a neighbour's and its own", 0, 2, 1, byKill, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := newFiles1(t)
			tr.Join("b", "/other/b")
			tr.make1("/other/b", 0)
			tr.losses(tt.before)
			kept := map[string]int{"a": tr.Join("a", "/pod/a"), "b": tr.elsewhere()}
			tr.losses(tt.then)
			tr.make1("/other/b", tt.neighbour)
			tr.restart(tr.memory)
			for id, path := range map[string]string{"a": "/pod/a", "b": "/other/b"} {
				tr.Rejoin(id, path, kept[id])
				tr.Watch(id, "")
			}
			tr.settle("a", tt.killed, tt.want)
			tr.settle("b", byKill, tt.neighbour > 0)
		})
	}
}

func (tr *tree1) elsewhere() int { return tr.families[tr.memory.mountPoint].elsewhere }

// TestVersion1CountsOnce has the one that was to blame for a loss leave.
func TestVersion1CountsOnce(t *testing.T) {
	tr := newFiles1(t)
	for _, id := range []string{"a", "b", "c"} {
		tr.Join(id, "/pod/"+id)
	}
	tr.losses(2)
	tr.settle("a", byKill, true)
	tr.settle("b", byKill, true)
	tr.settle("c", byKill, false)
	// And one that lost a process in a start that failed.
	tr.Join("d", "/pod/d")
	tr.Join("e", "/pod/e")
	tr.make1("/pod/d", 0)
	tr.make1("/pod/e", 1)
	tr.losses(1)
	tr.Join("f", "/pod/f")
	tr.make1("/pod/f", 0)
	tr.Leave("e")
	tr.Join("g", "/pod/g")
	tr.remove("/pod/d")
	tr.settle("d", byKill, false)
}

// TestVersion1KnowsWhatItHasSeen is about one whose own count has been read when
// another was asked about, and which is gone at the same time as the next.
func TestVersion1KnowsWhatItHasSeen(t *testing.T) {
	tr := newFiles1(t)
	for _, id := range []string{"a", "b", "c"} {
		tr.Join(id, "/pod/"+id)
	}
	tr.losses(3)
	tr.make1("/pod/b", 1)
	tr.settle("a", byKill, true)
	tr.remove("/pod/b")
	tr.settle("b", byKill, true)
	tr.settle("c", byKill, true)
}

// kernel is a real hierarchy.
type kernel struct{ *tree1 }

func newKernel(t *testing.T) kernel {
	t.Helper()
	all, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	h, err := memory(all)
	if err != nil || h.unified {
		t.Skip("needs a host with the memory controller on cgroup v1")
	}
	root := h.dir(fmt.Sprintf("fairlead-ledger-test-%d", os.Getpid()))
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Skipf("needs the right to make cgroups: %v", err)
	}
	k := kernel{newTree1(t, root, h)}
	t.Cleanup(func() {
		for _, m := range k.members {
			m.signals.close()
		}
		left, _ := filepath.Glob(root + "/?")
		for _, dir := range append(left, root) {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		}
	})
	return k
}

func (k kernel) limit(path string, bytes int) {
	k.t.Helper()
	if err := write(k.root+path+"/memory.limit_in_bytes", fmt.Sprint(bytes)); err != nil {
		k.t.Fatal(err)
	}
	// Not every host accounts for swap.
	_ = write(k.root+path+"/memory.memsw.limit_in_bytes", fmt.Sprint(bytes))
}

// start is a container that has begun, and been seen.
func (k kernel) start(id string) string {
	k.t.Helper()
	path := "/" + id
	k.Join(id, path)
	if err := os.Mkdir(k.root+path, 0o755); err != nil {
		k.t.Fatal(err)
	}
	k.Watch(id, "")
	if !k.members[id].watched {
		k.t.Fatalf("%s is not watched", id)
	}
	return path
}

const small = 16 << 20

// eat has a process in a cgroup want more memory than there is.
func (k kernel) eat(path string) {
	k.t.Helper()
	before := k.count(path)
	err := exec.Command("sh", "-c", `echo $$ >"$0/cgroup.procs"; x=a; while :; do x=$x$x; done`, k.root+path).Run()
	if err == nil {
		k.t.Fatal("it had enough")
	}
	k.losses(k.count(path) - before)
}

func (k kernel) count(path string) int {
	k.t.Helper()
	n, err := k.memory.kills(k.root + path)
	if err != nil {
		k.t.Fatal(err)
	}
	return n
}

// rmdir is what systemd does before anybody can look.
func (k kernel) rmdir(paths ...string) {
	k.t.Helper()
	for _, path := range paths {
		if err := os.Remove(k.root + path); err != nil {
			k.t.Fatal(err)
		}
	}
}

// cleared waits until the kernel has said all that it will of a container
// whose cgroup is removed.
func (k kernel) cleared(id string, want int) {
	k.t.Helper()
	for deadline := time.Now().Add(time.Minute); k.members[id].signals.count() < want; {
		if time.Now().After(deadline) {
			k.t.Fatalf("%s: %d signals", id, k.members[id].signals.sum)
		}
		await(k.members[id].signals.fd, deadline)
	}
}

func TestVersion1OfAGoneCgroup(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late=%t", late), func(t *testing.T) {
			k := newKernel(t)
			a, b, c := k.start("a"), k.start("b"), k.start("c")
			k.limit(a, small)
			k.limit(b, small)
			k.eat(a)
			k.rmdir(a, c)
			if late {
				k.cleared("a", 2)
				k.cleared("c", 1)
			}
			// While a's loss is nobody's, c may have it, were it not for the signals.
			k.settle("c", byKill, false)
			k.settle("a", byKill, true)
			k.eat(b)
			k.settle("b", byItself, true)
			k.rmdir(b)
		})
	}
}

// TestVersion1OfAnotherEnd is one that goes on without the process that was
// killed. It shows if it is still there.
func TestVersion1OfAnotherEnd(t *testing.T) {
	k := newKernel(t)
	a := k.start("a")
	k.limit(a, small)
	k.eat(a)
	k.rmdir(a)
	k.settle("a", byItself, false)
}

// TestVersion1OfALimitAbove has memory run out above, of which all below hear.
func TestVersion1OfALimitAbove(t *testing.T) {
	k := newKernel(t)
	a, b, c := k.start("a"), k.start("b"), k.start("c")
	k.limit("", small)
	k.eat(a)
	k.rmdir(a)
	k.settle("a", byKill, true)
	k.cleared("b", 1)
	k.rmdir(b)
	k.settle("b", byKill, false)
	// The one that it costs goes on, and is still there.
	d := k.start("d")
	k.eat(d)
	k.rmdir(c)
	k.cleared("c", 3)
	k.settle("c", byKill, false)
	k.settle("d", byKill, true)
	k.rmdir(d)
}

// TestVersion1WithoutAKill has memory run out where the kernel waits for
// somebody else to see to it.
func TestVersion1WithoutAKill(t *testing.T) {
	k := newKernel(t)
	a := k.start("a")
	k.limit(a, small)
	if err := write(k.root+a+"/"+oomFile, "1"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `echo $$ >"$0/cgroup.procs"; x=a; while :; do x=$x$x; done`, k.root+a)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k.cleared("a", 1)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	k.rmdir(a)
	k.cleared("a", 2)
	k.settle("a", byKill, false)
}

// TestVersion1ClosesWhatItOpens counts descriptors.
func TestVersion1ClosesWhatItOpens(t *testing.T) {
	k := newKernel(t)
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := open()
	for _, end := range []func(id string){
		k.Leave,
		func(id string) { k.Settle(id, byKill) },
		func(id string) { k.Join(id, "/"+id); k.Leave(id) }, // again
	} {
		path := k.start("a")
		k.Watch("a", "") // again
		if now := open(); now != before+1 {
			t.Errorf("a container has %d descriptors", now-before)
		}
		end("a")
		k.rmdir(path)
	}
	k.start("b")
	k.rmdir("/b")
	k.settle("b", byKill, false)
	k.Join("c", "/c") // never there
	k.Watch("c", "")
	k.Leave("c")
	if now := open(); now != before {
		t.Errorf("%d descriptors are open, before it were %d", now, before)
	}
}

// TestHostCountsKills is about the one line of the kernel's that tells.
func TestHostCountsKills(t *testing.T) {
	k := newKernel(t)
	host := newLedger(k.memory).host
	before, err := killsIn(host)
	if err != nil {
		t.Fatal(err)
	}
	a := k.start("a")
	k.limit(a, small)
	k.eat(a)
	if now, _ := killsIn(host); now <= before {
		t.Errorf("%s counts %d kills, before it were %d", host, now, before)
	}
	k.rmdir(a)
	k.settle("a", byKill, true)
}
