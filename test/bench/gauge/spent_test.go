package gauge

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// computing is a program that takes some processor time, says so, and ends with
// its input.
const computing = `(i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done); echo done; read x`

// A thread that ends leaves its time with its process.
func TestTimeOfThreads(t *testing.T) {
	cpu := func() time.Duration {
		t.Helper()
		ran, err := timeOf([]int{os.Getpid()})
		if err != nil {
			t.Fatal(err)
		}
		return ran
	}
	tids := make(chan int)
	go func() {
		runtime.LockOSThread() // without an end: the thread goes with the goroutine
		for begin := time.Now(); time.Since(begin) < 50*time.Millisecond; {
		}
		tids <- unix.Gettid()
	}()
	tid := <-tids
	if tid == os.Getpid() {
		t.Skip("the goroutine had the first thread, which does not end")
	}
	before := cpu()
	for {
		if _, err := os.Stat("/proc/self/task/" + strconv.Itoa(tid)); os.IsNotExist(err) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if after := cpu(); after < before {
		t.Errorf("%s before a thread ended, and %s then", before, after)
	}
}

// What a program took is there while it lives and does not change when it ends.
func TestSpentByChildren(t *testing.T) {
	d := Daemon{Pid: os.Getpid()}
	spent := func() time.Duration {
		t.Helper()
		s, err := d.Spent()
		if err != nil {
			t.Fatal(err)
		}
		if s.Daemon <= 0 || s.Monitor != 0 || s.Programs != 0 || s.Machine < s.Children || s.Ticks < s.Kernel {
			t.Errorf("%+v", s)
		}
		return s.Children
	}
	before := spent()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", computing)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "done\n" {
		t.Fatalf("%q, %v", line, err)
	}
	alive := spent() - before
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // read fails at the end of its input
	ended := spent() - before
	took := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	// Times of those that have ended come in ticks, those of user and system apart.
	const unit = 4 * userTick
	if took < unit {
		t.Skipf("this machine is too quick: %s", took)
	}
	if alive < took-unit || alive > took+unit || ended < took-unit || ended > took+unit {
		t.Errorf("the program took %s; while it lived %s, and then %s", took, alive, ended)
	}
}

func TestParseStat(t *testing.T) {
	const rest = " S 7 1 1 0 -1 4194560 9 8 7 6 100 50 20 3 20 0 1 0 1234 0"
	for name, want := range map[string]process{
		"12 (sh)":           {12, 7, "sh", 230 * time.Millisecond},
		"12 (a b) (c)":      {12, 7, "a b) (c", 230 * time.Millisecond},
		"12 (" + ") S 1 2)": {12, 7, ") S 1 2", 230 * time.Millisecond},
	} {
		if got, err := parseStat(name + rest); err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", name, got, err, want)
		}
	}
	for _, text := range []string{"", "12 sh S 7", "12 (sh) S 7", "x (sh)" + rest, "12 )sh(" + rest} {
		if got, err := parseStat(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestAbove(t *testing.T) {
	all := table{1: {pid: 1}, 2: {pid: 2, parent: 1}, 3: {pid: 3, parent: 2}, 4: {pid: 4, parent: 3}, 8: {pid: 8, parent: 9}, 9: {pid: 9, parent: 8}}
	for _, tt := range []struct{ from, fits, want int }{{4, 2, 2}, {4, 3, 3}, {4, 4, 0}, {2, 4, 0}, {1, 1, 0}, {8, 1, 0}, {2, 1, 1}} {
		if got := all.above(all[tt.from], func(p process) bool { return p.pid == tt.fits }); got != tt.want {
			t.Errorf("above %d, %d: got %d, want %d", tt.from, tt.fits, got, tt.want)
		}
	}
}
