package monitor_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/client"
	"fairlead.run/internal/monitor/linux"
)

// keep makes the node's client hold on to what would be lost with the monitor,
// as the daemon's does.
func (n *node) keep() *client.Keep {
	n.t.Helper()
	k, err := client.NewKeep(nil)
	if err != nil {
		n.t.Fatal(err)
	}
	n.opt.Keep = k
	if n.Client, err = client.Ensure(n.ctx, n.opt); err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(n.ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = k.Run(ctx) })
	n.t.Cleanup(func() {
		cancel()
		wg.Wait()
		_ = k.Close()
	})
	return k
}

// follow connects as a daemon does that finds the monitor away, and returns the
// exits of these containers.
func (n *node) follow(ids ...string) map[string]monitorv1.Exit {
	n.t.Helper()
	ctx, cancel := context.WithCancel(n.ctx)
	defer cancel()
	told := map[string]monitorv1.Exit{}
	see := func(e monitorv1.Exit) {
		if slices.Contains(ids, e.ID) {
			told[e.ID] = e
		}
		if len(told) == len(ids) {
			cancel()
		}
	}
	for ctx.Err() == nil && errors.Is(n.Events(ctx, see), errdefs.ErrUnavailable) {
		time.Sleep(10 * time.Millisecond)
	}
	if len(told) != len(ids) {
		n.t.Fatalf("of the ends of %v these were told: %v", ids, told)
	}
	return told
}

// stop keeps a process of the monitor's from running.
func (n *node) stop(pid int) {
	n.t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGCONT) }) // of a test that has failed
	n.eventually("it stands still", func() bool { return isIn(pid, 'T') })
}

func (n *node) killBoth() {
	n.t.Helper()
	i := n.info()
	n.stop(i.OuterPID) // else one would start the other again
	n.stop(i.InnerPID)
	n.kill(i.OuterPID)
	n.kill(i.InnerPID)
	n.eventually("the end of both", func() bool { return !alive(i.OuterPID) && !alive(i.InnerPID) })
}

// tellsOfReaped says whether this kernel tells whoever has a process open how it
// ended, although another has reaped it: from 6.15 on. Whom an older one tells of
// the ends of processes is the monitor.
func tellsOfReaped(t *testing.T) bool {
	t.Helper()
	pidfd := -1
	cmd := exec.Command("/bin/sh", "-c", "exit 7")
	cmd.SysProcAttr = &syscall.SysProcAttr{PidFD: &pidfd}
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 7 {
		t.Fatalf("exit 7: %v", err)
	}
	defer unix.Close(pidfd)
	code, _, ok := linux.EndOfPidfd(pidfd)
	return ok && code == 7
}

// Containers write and end while both of the monitor's processes are dead. With
// a caller that keeps what they have, no line is lost, and when they ended is
// known; how, if the kernel tells. One with a terminal goes on.
func TestKeptWhileBothAreDead(t *testing.T) { kernels(t, keptWhileBothAreDead) }

func keptWhileBothAreDead(t *testing.T, env ...string) {
	n := newNode(t, env...)
	n.keep()
	const lines = 500
	script := fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo $i; i=$((i+1)); done; ", lines)
	var pids []int
	pids = append(pids, n.start(n.gated("plain", script+"printf 'no newline' >&2; exit 9")).PID)
	pids = append(pids, n.start(n.terminal("tty", n.untilOpen("tty")+script+"exit 8")).PID)
	n.start(n.terminal("lives", n.untilOpen("lives")+"echo hello; "+n.untilOpen("end")+"echo bye; exit 7"))
	n.killBoth()
	before := time.Now()
	for _, id := range []string{"plain", "tty", "lives"} {
		n.open(id)
	}
	n.eventually("the end of two", func() bool { return !alive(pids[0]) && !alive(pids[1]) })
	time.Sleep(time.Second) // for the caller to see it, too
	after := time.Now()
	exits := n.follow("plain", "tty")
	for id, code := range map[string]int{"plain": 9, "tty": 8} {
		e := exits[id]
		if e.Code != code && (tellsOfReaped(t) || !e.Lost) {
			t.Errorf("exit of %s: %+v", id, e)
		}
		if e.Found || e.FinishedAt.Before(before) || e.FinishedAt.After(after) {
			t.Errorf("%s ended at %s, found %t, not between %s and %s", id, e.FinishedAt, e.Found, before, after)
		}
		alone := client.Find(client.Options{StateDir: n.opt.StateDir})
		if p, err := alone.Find(n.ctx, id); err != nil || p.Exit == nil || !p.Exit.Found || p.Exit.FinishedAt.Before(after) {
			t.Errorf("a caller who did not keep %s is told: %+v %v", id, p.Exit, err)
		}
		n.counted(id, lines)
	}
	if got := n.text("plain", "stderr"); got != "no newline" && got != "no newline\n" {
		t.Errorf("error output: %q", got)
	}
	n.open("end")
	n.wait("lives")
	if got := strings.ReplaceAll(n.text("lives", "stdout"), "\r", ""); got != "hello\nbye\n" {
		t.Errorf("terminal of one that lived on: %q", got)
	}
	for _, id := range []string{"plain", "tty", "lives"} {
		if err := n.Forget(n.ctx, id); err != nil {
			t.Error(err)
		}
	}
}
