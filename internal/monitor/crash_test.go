package monitor_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/failpoint"
)

// printers starts three containers that print as fast as they can.
func (n *node) printers(seconds float64) []string {
	n.t.Helper()
	ids := []string{"p1", "p2", "p3"}
	for _, id := range ids {
		n.start(n.container(id, n.bin, "print", id, strconv.FormatFloat(seconds, 'f', 2, 64)))
	}
	return ids
}

// complete checks that a printer's log has every line once, uncut and, within
// a stream, in order.
func (n *node) complete(id string) {
	n.t.Helper()
	seen := map[int]int{}
	total := -1
	last := map[string]int{}
	for _, stream := range []string{"stdout", "stderr"} {
		for line := range strings.Lines(n.text(id, stream)) {
			line = strings.TrimSuffix(line, "\n")
			if rest, ok := strings.CutPrefix(line, id+" total "); ok {
				total, _ = strconv.Atoi(rest)
				continue
			}
			fields := strings.Split(line, " ")
			if len(fields) != 3 || fields[0] != id {
				n.t.Fatalf("%s: broken line %q", id, line)
			}
			i, err := strconv.Atoi(fields[1])
			if err != nil || len(fields[2]) != i%300+1 || !strings.HasSuffix(line, ".") {
				n.t.Fatalf("%s: broken line %q", id, line)
			}
			if i < last[stream] {
				n.t.Fatalf("%s: line %d after %d", id, i, last[stream])
			}
			last[stream] = i
			seen[i]++
		}
	}
	lost, doubled := 0, 0
	for i := range total {
		switch seen[i] {
		case 0:
			lost++
		case 1:
		default:
			doubled++
		}
	}
	if total < 100 || lost > 0 || doubled > 0 {
		n.t.Errorf("%s: %d lines, %d lost, %d doubled", id, total, lost, doubled)
	}
	n.t.Logf("%s: %d lines", id, total)
}

// check waits for the printers and checks how they ended. With lost, how may be
// unknown, but then it is said.
func (n *node) check(ids []string, lost bool) {
	n.t.Helper()
	for _, id := range ids {
		e := n.wait(id)
		told := e.Code == 0 && !e.Lost
		if said := e.Code == monitorv1.LostCode && e.Lost; !told && !(lost && said) || e.Signal != 0 {
			n.t.Errorf("exit of %s: %+v", id, e)
		}
	}
	for _, id := range ids {
		n.complete(id)
	}
}

func TestKillInner(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	ids := n.printers(3)
	for range 8 {
		time.Sleep(250 * time.Millisecond)
		before := n.info()
		n.kill(before.InnerPID)
		if after := n.info(); after.InnerPID == before.InnerPID || after.OuterPID != before.OuterPID || after.Processes != 3 {
			t.Fatalf("after %+v came %+v", before, after)
		}
	}
	n.check(ids, false)
}

func TestKillOuter(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	ids := n.printers(2.5)
	for range 4 {
		time.Sleep(400 * time.Millisecond)
		before := n.info()
		n.kill(before.OuterPID)
		n.eventually("a new pair", func() bool {
			i, err := n.Info(n.ctx)
			return err == nil && i.OuterPID == before.InnerPID && i.InnerPID != before.InnerPID
		})
	}
	n.check(ids, false)
}

// The two by turns: children then belong to the inner process, the outer one
// and init, and the exit codes of all are known, if the kernel tells them.
func TestKillByTurns(t *testing.T) { kernels(t, killByTurns) }

func killByTurns(t *testing.T, env ...string) {
	n := newNode(t, env...)
	ids := n.printers(3)
	begun := time.Now()
	n.start(n.shell("early", "sleep 0.9; exit 11"))
	n.start(n.gated("late", "exit 12"))
	n.start(n.gated("killed", "kill -KILL $$"))
	for range 3 {
		time.Sleep(300 * time.Millisecond)
		n.kill(n.info().InnerPID)
		time.Sleep(100 * time.Millisecond)
		before := n.info()
		n.kill(before.OuterPID)
		n.eventually("a new pair", func() bool {
			i, err := n.Info(n.ctx)
			return err == nil && i.OuterPID == before.InnerPID
		})
		n.start(n.shell(fmt.Sprintf("x%d", before.InnerPID), "exit 5"))
	}
	n.check(ids, !n.kernelTells())
	n.open("late")
	n.open("killed")
	for id, code := range map[string]int{"early": 11, "late": 12, "killed": 137} {
		e := n.wait(id)
		if e.Code != code && !(e.Lost && !n.kernelTells()) || !e.Lost && (e.Signal != 0) != (id == "killed") {
			t.Errorf("exit of %s: %+v", id, e)
		}
		if e.FinishedAt.Before(begun) || e.FinishedAt.After(time.Now()) {
			t.Errorf("%s ended at %s, not after %s", id, e.FinishedAt, begun)
		}
	}
}

// oldKernel makes the monitor take the kernel for one before 6.15, which tells
// how a process ended to its parent and to who listens to process events.
const oldKernel = failpoint.MonitorEnv + "=monitor.inner.kernel-tells=error"

// kernelTells says whether the kernel tells how a process of somebody else's
// ended. An old one need not have process events, and then the monitor says so.
func (n *node) kernelTells() bool {
	n.t.Helper()
	log, err := os.ReadFile(n.opt.StateDir + "/monitor/monitor.log")
	if err != nil {
		n.t.Fatal(err)
	}
	return !strings.Contains(string(log), "the kernel reports no ends of processes")
}

// kernels runs a test with the kernel as it is, and as an old one.
func kernels(t *testing.T, test func(t *testing.T, env ...string)) {
	t.Helper()
	t.Parallel()
	t.Run("kernel=this", func(t *testing.T) {
		t.Parallel()
		test(t)
	})
	t.Run("kernel=old", func(t *testing.T) {
		t.Parallel()
		test(t, oldKernel)
	})
}

// With both dead, the next request starts a new pair. Output waits for it, and
// so do exits, except those that happened in between: they are lost, and said
// to be.
func TestKillBoth(t *testing.T) { kernels(t, killBoth) }

func killBoth(t *testing.T, env ...string) {
	n := newNode(t, env...)
	ids := []string{"p1", "p2", "p3"}
	for _, id := range ids {
		n.start(n.bystander(id))
	}
	n.start(n.shell("meanwhile", "sleep 0.6; echo bye; exit 9"))
	n.start(n.gated("after", "exit 10"))
	time.Sleep(300 * time.Millisecond)
	i := n.info()
	n.kill(i.OuterPID)
	n.kill(i.InnerPID)
	time.Sleep(600 * time.Millisecond)
	e := n.wait("meanwhile")
	// Where init is slow to reap, the kernel still knows the code.
	if lost := e.Lost && e.Code == monitorv1.LostCode; !lost && e.Code != 9 || lost && !e.Found {
		t.Errorf("exit that nobody saw: %+v", e)
	}
	for _, id := range append(ids, "after") {
		n.open(id)
	}
	if e := n.wait("after"); e.Code != 10 && n.kernelTells() {
		t.Errorf("exit of an orphan: %+v", e)
	}
	n.check(ids, !n.kernelTells())
}

func TestUpgrade(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	ids := n.printers(2.5)
	n.start(n.terminal("tty", "sleep 2; echo still here"))
	first := n.info()
	for i := range 5 {
		time.Sleep(300 * time.Millisecond)
		pid := first.OuterPID
		if i%2 == 1 {
			pid = first.InnerPID
		}
		started := n.info().StartedAt
		if err := unix.Kill(pid, unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
		n.eventually("an upgraded inner process", func() bool {
			i, err := n.Info(n.ctx)
			return err == nil && i.StartedAt.After(started)
		})
		if now := n.info(); now.InnerPID != first.InnerPID || now.OuterPID != first.OuterPID {
			t.Fatalf("pids changed: %+v, then %+v", first, now)
		}
	}
	n.check(ids, false)
	if e := n.wait("tty"); e.Code != 0 || !strings.Contains(n.text("tty", "stdout"), "still here") {
		t.Errorf("terminal: %+v %q", e, n.text("tty", "stdout"))
	}
}
