package threads

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// mine are the threads of this process.
func mine(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}

func TestReserve(t *testing.T) {
	for range 2 { // what is there already does not count
		before := reserved.n
		if err := Reserve(20); err != nil {
			t.Skip(err)
		}
		if got, want := mine(t), before+20; got < want {
			t.Errorf("%d threads, want %d and those that were not idle", got, want)
		}
	}
	has := mine(t)
	var all sync.WaitGroup
	var ends []int
	var waiting [20]chan struct{}
	for i := range waiting { // in the kernel, each on a thread
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		waiting[i] = make(chan struct{})
		all.Go(func() {
			close(waiting[i])
			_, _ = unix.Read(pipe[0], make([]byte, 1))
			_ = unix.Close(pipe[0])
		})
		ends = append(ends, pipe[1])
	}
	for _, w := range waiting {
		<-w
	}
	if more := mine(t) - has; more > 0 {
		t.Errorf("%d threads were started for calls that wait", more)
	}
	for _, fd := range ends {
		_ = unix.Close(fd)
	}
	all.Wait()
}

// A reserve is made or refused, whatever room there is: it never ends the process.
func TestReserveWithLittleRoom(t *testing.T) {
	const n, role = 40, "FAIRLEAD_TEST_RESERVE"
	if os.Getenv(role) != "" {
		for range 20 { // which want all processors meanwhile
			go func() {
				for range time.Tick(time.Microsecond) {
					runtime.Gosched()
				}
			}()
		}
		err := Reserve(n)
		if err != nil && !errors.Is(err, errdefs.ErrExhausted) {
			t.Error(err)
		}
		time.Sleep(300 * time.Millisecond) // as long as the runtime tries to get a thread
		return
	}
	dir := fmt.Sprintf("/sys/fs/cgroup/pids/%s-%d", t.Name(), os.Getpid())
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("needs root and the pids controller of cgroup v1, to make a cgroup: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	for room := n + 3; room < n+16; room++ {
		if err := os.WriteFile(filepath.Join(dir, "pids.max"), []byte(strconv.Itoa(room)), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, dir, os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), role+"=1", "GOMAXPROCS=8")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("with %d process ids: %v: %.200s", room, err, out)
		}
	}
}

// reserving has the process say for the time of a test whether it has a reserve.
func reserving(t *testing.T, has bool) {
	t.Helper()
	before := hasReserve.Swap(has)
	t.Cleanup(func() { hasReserve.Store(before) })
}

func TestAsideKeepsItsThreads(t *testing.T) {
	reserving(t, true)
	prepared := 0
	a := Aside{Prepare: func() { prepared++ }}
	seen := map[int]bool{}
	for range 50 {
		a.Run(func() { seen[unix.Gettid()] = true })
	}
	if len(seen) != 1 || prepared != 1 || seen[unix.Getpid()] {
		t.Errorf("%d threads, prepared %d times; the first is one of them: %t", len(seen), prepared, seen[unix.Getpid()])
	}
}

// Without a reserve nothing is left behind, as a bubble wants it.
func TestAsideWithoutReserve(t *testing.T) {
	reserving(t, false)
	prepared := 0
	a := Aside{Prepare: func() { prepared++ }}
	synctest.Test(t, func(*testing.T) {
		for range 5 {
			a.Run(func() {})
		}
	})
	if prepared != 5 || len(a.idle) != 0 {
		t.Errorf("%d threads were prepared, %d are kept", prepared, len(a.idle))
	}
}

// One that hangs holds nobody up, and no more threads are kept than it says.
func TestAsideAtTheSameTime(t *testing.T) {
	reserving(t, true)
	var a Aside
	const callers = 3 * maxIdle
	var began, ended sync.WaitGroup
	all := make(chan struct{})
	began.Add(callers)
	for range callers {
		ended.Go(func() {
			a.Run(func() {
				began.Done()
				<-all
			})
		})
	}
	began.Wait() // all of them at the same time
	close(all)
	ended.Wait()
	var idle int
	for range 100 {
		a.Run(func() {})
		a.mu.Lock()
		idle = len(a.idle)
		a.mu.Unlock()
		if idle > maxIdle {
			t.Fatalf("%d threads wait", idle)
		}
	}
}

// machine writes what a kernel says of limits.
func machine(t *testing.T, files map[string]string) host {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return host{proc: filepath.Join(dir, "proc"), cgroup: filepath.Join(dir, "cgroup"), used: func() int { return 300 }}
}

func TestReached(t *testing.T) {
	const v1, v2 = "5:memory:/x\n4:pids:/a/b\n0::/other", "0::/a/b"
	for name, tt := range map[string]struct {
		files map[string]string
		want  string
	}{
		"none": {map[string]string{
			"proc/self/cgroup": v1, "cgroup/pids/a/b/pids.current": "40", "cgroup/pids/a/b/pids.max": "max",
			"proc/sys/kernel/pid_max": "32768", "proc/sys/kernel/threads-max": "1000",
		}, ""},
		"its own": {map[string]string{
			"proc/self/cgroup": v1, "cgroup/pids/a/b/pids.current": "40", "cgroup/pids/a/b/pids.max": "40", "proc/sys/kernel/pid_max": "301",
		}, "no process ids are left: pids.max of cgroup /a/b allows 40 and 40 are in use; raise it"},
		"the one above": {map[string]string{
			"proc/self/cgroup": v1, "cgroup/pids/a/b/pids.current": "40", "cgroup/pids/a/b/pids.max": "max", "cgroup/pids/a/pids.current": "99", "cgroup/pids/a/pids.max": "100",
		}, "cgroup /a allows 100 and 99"},
		"version 2": {map[string]string{
			"proc/self/cgroup": v2, "cgroup/a/b/pids.current": "40", "cgroup/a/b/pids.max": "40",
		}, "cgroup /a/b allows 40"},
		"another controller's": {map[string]string{
			"proc/self/cgroup": "4:memory:/a/b", "cgroup/pids/a/b/pids.current": "40", "cgroup/pids/a/b/pids.max": "40",
		}, ""},
		"the machine's pids":    {map[string]string{"proc/sys/kernel/pid_max": "300", "proc/sys/kernel/threads-max": "1000"}, "kernel.pid_max allows 300 and 300"},
		"the machine's threads": {map[string]string{"proc/sys/kernel/pid_max": "4000", "proc/sys/kernel/threads-max": "301"}, "kernel.threads-max allows 301"},
	} {
		h := machine(t, tt.files)
		if got := h.reached(); !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	h := machine(t, map[string]string{"proc/sys/kernel/pid_max": "310"})
	if err := h.room(10); err != nil {
		t.Error(err)
	}
	if err := h.room(11); !errors.Is(err, errdefs.ErrExhausted) || !strings.Contains(err.Error(), "pid_max") {
		t.Error(err)
	}
}

func TestExplain(t *testing.T) {
	for _, err := range []error{nil, syscall.ENOENT} {
		if got := Explain(err); !errors.Is(got, err) || got != nil && got.Error() != err.Error() {
			t.Errorf("%v: %v", err, got)
		}
	}
	err := Explain(&os.PathError{Op: "fork/exec", Path: "/bin/x", Err: syscall.EAGAIN})
	if !errors.Is(err, syscall.EAGAIN) || !errors.Is(err, errdefs.ErrExhausted) || !strings.Contains(err.Error(), "no process ids") {
		t.Error(err)
	}
}

func TestTells(t *testing.T) {
	for said, want := range map[string]bool{
		"clone: Resource temporarily unavailable":                                        true,
		"fork/exec /proc/self/exe: resource temporarily unavailable":                     true,
		"runtime: failed to create new OS thread (have 2 already; errno=11)\nruntime: x": true,
		"permission denied":        false,
		"":                         false,
		fmt.Sprint(syscall.ENOMEM): false,
	} {
		if got := Tells(said); got != want {
			t.Errorf("%q: %t", said, got)
		}
	}
}
