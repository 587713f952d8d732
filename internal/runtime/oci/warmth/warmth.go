// Package warmth makes the start of a process quicker by what the kernel does when one
// joins a cgroup. It then takes a lock that every fork and exit holds for
// reading, and after a while in which nobody did, it first has to wait until all
// processors have noticed: an RCU grace period, some 10 ms. After that it costs
// nothing, for about as long.
//
// So one does at the beginning of a pod's start what the runtime will do in the
// middle of it. That changes nothing: a process is put where it is.
package warmth

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Warmth is one for all handlers. The zero value is ready.
type Warmth struct {
	mu   sync.Mutex
	busy bool
	last time.Time
}

// keepsWarm is how long the lock is surely quick. The kernel lets go of it a
// grace period after its last use.
const keepsWarm = 5 * time.Millisecond

// Warm is told that a process will be started soon, and returns at once.
func (w *Warmth) Warm() { w.warm(joinOwn) }

// warm calls join unless somebody just did, on a goroutine that ends with it.
func (w *Warmth) warm(join func()) {
	if w == nil { // a handler that was not made by a driver
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy || time.Since(w.last) < keepsWarm {
		return
	}
	w.busy = true
	go func() {
		join()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.busy, w.last = false, time.Now()
	}()
}

// Keep warms again and again until the returned function is called: a runtime that
// starts a sandbox joins cgroups in the beginning and 100 ms later once more.
func (w *Warmth) Keep() (end func()) { return w.keep(joinOwn) }

func (w *Warmth) keep(join func()) (end func()) {
	w.warm(join)
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for again := time.NewTicker(keepsWarm); ; {
			select {
			case <-over:
				again.Stop()
				return
			case <-again.C:
				w.warm(join)
			}
		}
	}()
	return func() {
		close(over)
		<-ended
	}
}

// joinOwn puts this process into the cgroup that it is in. Where that fails,
// starts take as long as they do without.
func joinOwn() {
	dir := ownGroup("/proc/self/cgroup", "/sys/fs/cgroup")
	if dir == "" {
		return
	}
	f, err := os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	// With a cgroup namespace, or mounts from elsewhere, the path may lead to
	// another cgroup, and then this would be a move.
	if lists(f, os.Getpid()) {
		_, _ = f.WriteString("0")
	}
}

// ownGroup is the folder of this process's cgroup in some hierarchy, of which
// it does not matter which: they have the lock together.
func ownGroup(table, root string) string {
	b, err := os.ReadFile(table)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		mounts := []string{strings.TrimPrefix(f[1], "name=")}
		if f[1] == "" { // cgroup v2, alone or beside v1
			mounts = []string{"", "unified"}
		}
		for _, m := range mounts {
			dir := filepath.Join(root, m, f[2])
			if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
				return dir
			}
		}
	}
	return ""
}

// lists says whether a cgroup.procs has this process in it.
func lists(f *os.File, pid int) bool {
	want := strconv.Itoa(pid)
	for s := bufio.NewScanner(f); s.Scan(); {
		if s.Text() == want {
			return true
		}
	}
	return false
}
