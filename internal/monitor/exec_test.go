package monitor_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/linux"
)

func (n *node) exec(id, script string) monitorv1.ExecRequest {
	r := n.shell(id, script)
	return monitorv1.ExecRequest{ID: id, Command: r.Command, Env: r.Env, PIDFile: r.PIDFile, Timeout: r.Timeout}
}

func TestExec(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	in, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer outR.Close()
	_, master, err := n.Exec(n.ctx, n.exec("e", "cat; exit 3"), [3]*os.File{in, out, nil})
	if err != nil || master != nil {
		t.Fatalf("%v %v", master, err)
	}
	_, _ = in.Close(), out.Close()
	_, _ = inW.WriteString("through")
	_ = inW.Close()
	got, err := io.ReadAll(outR)
	if err != nil || string(got) != "through" {
		t.Errorf("output %q %v", got, err)
	}
	if e := n.wait("e"); e.Code != 3 || e.Kind != monitorv1.KindExec {
		t.Errorf("exit %+v", e)
	}
	if _, err := n.Attach(n.ctx, "e", attachAll); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("attach to an exec: %v", err)
	}
}

func TestExecTerminal(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	req := n.exec("e", "read x; stty size; echo $x; exit 2")
	req.Command[3], req.TTY = monitorv1.ConsoleSocket, true
	_, master, err := n.Exec(n.ctx, req, [3]*os.File{})
	if err != nil {
		t.Fatal(err)
	}
	if err := linux.SetWindowSize(master, 55, 44); err != nil {
		t.Fatal(err)
	}
	_, _ = master.WriteString("word\n")
	r := bufio.NewReader(master)
	for _, want := range []string{"word", "44 55", "word"} {
		if line, err := r.ReadString('\n'); err != nil || strings.TrimSpace(line) != want {
			t.Errorf("line %q, not %q: %v", line, want, err)
		}
	}
	if e := n.wait("e"); e.Code != 2 {
		t.Errorf("exit %+v", e)
	}
	_ = master.Close()

	// Nobody has the terminal of an exec but its caller, so its end is seen.
	req = n.exec("gone", "sleep 1000")
	req.Command[3], req.TTY = monitorv1.ConsoleSocket, true
	_, master, err = n.Exec(n.ctx, req, [3]*os.File{})
	if err != nil {
		t.Fatal(err)
	}
	_ = master.Close()
	if e := n.wait("gone"); e.Signal != int(unix.SIGHUP) {
		t.Errorf("exit %+v", e)
	}
}

// An exec can be ended with everything it started, also after its own end.
func TestExecKillAll(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	outR, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer outR.Close()
	_, _, err = n.Exec(n.ctx, n.exec("e", "sleep 1000 & echo $!; sh -c 'sleep 1000 & echo $!; wait' & sleep 0.3; exit 0"), [3]*os.File{nil, out, nil})
	if err != nil {
		t.Fatal(err)
	}
	_ = out.Close()
	var pids []int
	r := bufio.NewReader(outR)
	for range 2 {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		pid, _ := strconv.Atoi(strings.TrimSpace(line))
		pids = append(pids, pid)
	}
	n.wait("e")
	if err := n.Signal(n.ctx, "e", unix.SIGKILL, true); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); err != nil { // ends when all that had it are dead
		t.Error(err)
	}
	for _, pid := range pids {
		n.eventually("death of "+strconv.Itoa(pid), func() bool { return !alive(pid) })
	}
	if err := n.Signal(n.ctx, "e", unix.SIGKILL, true); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("again: %v", err)
	}
}

// What has left its parent and its session is known by its mark, and nothing
// with another mark is taken for it.
func TestExecKillAllByMark(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	detached := map[string]int{}
	for i, id := range []string{"e", "other"} {
		outR, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer outR.Close()
		mark := uint64(monitorv1.MinMark + 100 + i)
		req := n.exec(id, fmt.Sprintf("prlimit --pid $$ --rttime=%d; (setsid sh -c 'echo $$; exec sleep 1000' &); exec sleep 1000", mark))
		req.Mark = mark
		if _, _, err := n.Exec(n.ctx, req, [3]*os.File{nil, out, nil}); err != nil {
			t.Fatal(err)
		}
		_ = out.Close()
		line, err := bufio.NewReader(outR).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if detached[id], err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Signal(n.ctx, "e", unix.SIGKILL, true); err != nil {
		t.Fatal(err)
	}
	n.wait("e")
	n.eventually("death of what it has left behind", func() bool { return !alive(detached["e"]) })
	if !alive(detached["other"]) {
		t.Error("what another has started is dead, too")
	}
	if err := n.Signal(n.ctx, "other", unix.SIGKILL, true); err != nil {
		t.Fatal(err)
	}
	n.eventually("death of the other's", func() bool { return !alive(detached["other"]) })
}

func TestExecRefusals(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	req := n.exec("e", "true")
	req.Command = []string{"/bin/false"}
	if _, _, err := n.Exec(n.ctx, req, [3]*os.File{}); err == nil || !strings.Contains(err.Error(), "code 1") {
		t.Errorf("failing runtime: %v", err)
	}
	req = n.exec("e", "true")
	req.Stdio[1] = true
	if _, _, err := n.Exec(n.ctx, req, [3]*os.File{}); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("missing descriptors: %v", err)
	}
	for _, mark := range []uint64{1, monitorv1.MinMark - 1, 2 * monitorv1.MinMark, math.MaxUint64} { // limits that others may have
		req = n.exec("e", "true")
		req.Mark = mark
		if _, _, err := n.Exec(n.ctx, req, [3]*os.File{}); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("mark %d: %v", mark, err)
		}
	}
}

// A runtime that talks without end neither fills memory nor disk.
func TestTalkativeRuntime(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	req := n.shell("loud", "true")
	req.Command = []string{"/bin/sh", "-c", "yes words 2>/dev/null | head -c 100000000 >&2; exec sleep 1000"}
	began := time.Now()
	_, err := n.Start(n.ctx, req)
	if err == nil || !strings.Contains(err.Error(), "MiB of messages") {
		t.Errorf("error: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	if st, err := os.Stat(n.dir + "/loud.log"); err != nil || st.Size() > 64<<20 {
		t.Errorf("log: %v %v", st, err)
	}
	// A moderate talker is heard out.
	req = n.shell("chatty", "echo up; exit 1")
	req.Command = append([]string{"/bin/sh", "-c", `yes words 2>/dev/null | head -c 1000000 >&2; exec "$0" "$@"`}, req.Command...)
	n.start(req)
	n.wait("chatty")
	if got := n.text("chatty", "stderr"); len(got) != 1000000 {
		t.Errorf("%d bytes of messages", len(got))
	}
	if got := n.text("chatty", "stdout"); got != "up\n" {
		t.Errorf("stdout %q", got)
	}
	// With a terminal, too.
	req = n.terminal("tty", "true")
	req.Command = []string{"/bin/sh", "-c", "yes words 2>/dev/null | head -c 100000000 >&2; exit 5 # " + monitorv1.ConsoleSocket}
	if _, err := n.Start(n.ctx, req); err == nil || !strings.Contains(err.Error(), "code 5") {
		t.Errorf("error: %v", err)
	}
}
