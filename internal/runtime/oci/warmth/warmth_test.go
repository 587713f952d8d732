package warmth

import (
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestWarmOnce fails if many starts at once each make the kernel work.
func TestWarmOnce(t *testing.T) {
	var w Warmth
	var joins atomic.Int32
	begun, goOn, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	w.warm(func() {
		joins.Add(1)
		close(begun)
		<-goOn
		close(over)
	})
	<-begun
	for range 10 {
		w.warm(func() { joins.Add(1) })
	}
	close(goOn)
	<-over
	if n := joins.Load(); n != 1 {
		t.Errorf("%d joins, want one", n)
	}
}

// TestKeep fails if it stops early, or goes on when the start is over.
func TestKeep(t *testing.T) {
	var w Warmth
	var joins atomic.Int32
	joined := make(chan struct{}, 1000)
	end := w.keep(func() {
		joins.Add(1)
		joined <- struct{}{}
	})
	for range 4 {
		<-joined
	}
	end()
	for w.isBusy() { // the last one may have begun before
		runtime.Gosched()
	}
	n := joins.Load()
	time.Sleep(4 * keepsWarm)
	if after := joins.Load(); after != n {
		t.Errorf("%d joins after the end", after-n)
	}
}

func (w *Warmth) isBusy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.busy
}

func TestOwnGroup(t *testing.T) {
	for name, tt := range map[string]struct {
		table string
		dirs  []string
		want  string
	}{
		"v2":                     {"0::/system.slice/x\n", []string{"system.slice/x"}, "system.slice/x"},
		"hybrid":                 {"12:pids:/a\n0::/b\n", []string{"pids/a", "unified/b"}, "pids/a"},
		"hybrid, v2 alone":       {"12:pids:/a\n0::/b\n", []string{"unified/b"}, "unified/b"},
		"a hierarchy by name":    {"1:name=systemd:/a\n", []string{"systemd/a"}, "systemd/a"},
		"none that is mounted":   {"12:pids:/a\n0::/b\n", nil, ""},
		"another cgroup's mount": {"0::/../b\n", []string{"b/c"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, d := range tt.dirs {
				if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(root, d, "cgroup.procs"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			table := filepath.Join(t.TempDir(), "cgroup")
			if err := os.WriteFile(table, []byte(tt.table), 0o644); err != nil {
				t.Fatal(err)
			}
			want := tt.want
			if want != "" {
				want = filepath.Join(root, want)
			}
			if got := ownGroup(table, root); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// TestJoinOwnStays fails if the daemon is moved to another cgroup.
func TestJoinOwnStays(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	before, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	joinOwn()
	after, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || string(after) != string(before) {
		t.Errorf("it was in\n%sand is in\n%s(%v)", before, after, err)
	}
}

// A cgroup that does not list the process is not joined.
func TestLists(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cgroup.procs")
	if err := os.WriteFile(path, []byte("1\n1234\n99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for pid, want := range map[int]bool{1: true, 1234: true, 99: true, 123: false, 234: false, 9: false} {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := lists(f, pid); got != want {
			t.Errorf("lists %d: %t, want %t", pid, got, want)
		}
		f.Close()
	}
}
