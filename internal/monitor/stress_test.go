package monitor_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
)

// valve makes a FIFO at which containers wait, and returns what ends the wait of
// all of them at once.
func (n *node) valve(name string) (path string, open func()) {
	n.t.Helper()
	path = n.dir + "/" + name
	if err := unix.Mkfifo(path, 0o600); err != nil {
		n.t.Fatal(err)
	}
	// Open for reading, too, so that this does not wait for readers. They wait
	// for a line, and one that comes late finds its own as well.
	keep, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = keep.Close() })
	return path, func() {
		if _, err := keep.WriteString(strings.Repeat("\n", 4096)); err != nil {
			n.t.Fatal(err)
		}
	}
}

// Killed at random moments, one process, the other or both, the monitor loses
// and doubles no line of containers that live on.
func TestKillAtRandom(t *testing.T) { kernels(t, killAtRandom) }

func killAtRandom(t *testing.T, env ...string) {
	n := newNode(t, env...)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	stop := n.dir + "/stop"
	var ids []string
	for i := range 4 {
		id := fmt.Sprintf("p%d", i)
		n.start(n.container(id, n.bin, "print", id, stop, "4"))
		ids = append(ids, id)
	}
	both, lost := 0, 0
	killed := map[int]bool{}
	kill := func(pid int) {
		n.killIfAlive(pid)
		killed[pid] = true
	}
	for round := range 40 {
		time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		i := n.info()
		// After an earlier kill one of them may have no other yet that takes its
		// place; whoever kills the one kills both.
		pair := alive(i.InnerPID) && alive(i.OuterPID) && !killed[i.InnerPID] && !killed[i.OuterPID]
		which := random.IntN(5)
		if which != 0 {
			kill(i.InnerPID)
		}
		if which == 4 {
			time.Sleep(time.Duration(random.IntN(8)) * time.Millisecond)
		}
		if which != 1 && which != 2 {
			kill(i.OuterPID)
		}
		if which > 2 {
			both++
		}
		id := fmt.Sprintf("x%d", round)
		n.start(n.shell(id, "echo here; exit 5"))
		e := n.wait(id)
		if e.Lost {
			lost++
		}
		if mayLose := which > 2 || !pair; e.Code != 5 && (!e.Lost || !mayLose) {
			t.Errorf("exit of %s: %+v; kind of kill %d, of a pair: %t", id, e, which, pair)
		}
	}
	t.Logf("both were killed %d times, and %d exits were lost", both, lost)
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.check(ids, !n.kernelTells())
	n.forgetAll()
}

func (n *node) killIfAlive(pid int) { _ = unix.Kill(pid, unix.SIGKILL) }

// Many exits in one moment, while the inner process dies and while it does not:
// each has its own code, signal and time.
func TestExitsTogether(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed=%t", killed), func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			path, open := n.valve("valve")
			want := map[string]monitorv1.Exit{}
			for code := range 200 {
				id := fmt.Sprintf("code%d", code)
				n.start(n.shell(id, fmt.Sprintf("read x < %s; echo %d; exit %d", path, code, code)))
				want[id] = monitorv1.Exit{Code: code}
			}
			for _, sig := range []unix.Signal{unix.SIGHUP, unix.SIGKILL, unix.SIGSEGV, unix.SIGTERM, unix.SIGABRT, unix.Signal(64)} {
				id := fmt.Sprintf("signal%d", sig)
				n.start(n.shell(id, fmt.Sprintf("read x < %s; echo %d; kill -%d $$", path, sig, sig)))
				want[id] = monitorv1.Exit{Code: 128 + int(sig), Signal: int(sig)}
			}
			before := time.Now()
			open()
			if killed {
				n.kill(n.info().InnerPID)
			}
			seqs := map[uint64]string{}
			for id, w := range want {
				e := n.wait(id)
				if e.Code != w.Code || e.Signal != w.Signal || e.Lost || e.OOMKilled {
					t.Errorf("exit of %s: %+v", id, e)
				}
				if e.FinishedAt.Before(before) || e.FinishedAt.After(time.Now()) {
					t.Errorf("%s ended at %s, not after %s", id, e.FinishedAt, before)
				}
				if other, taken := seqs[e.Seq]; taken {
					t.Errorf("%s and %s have the number %d", id, other, e.Seq)
				}
				seqs[e.Seq] = id
				if got := n.text(id, "stdout"); got != strings.TrimLeft(id, "codesignal")+"\n" {
					t.Errorf("log of %s: %q", id, got)
				}
			}
			n.inOrder(len(want))
			n.forgetAll()
		})
	}
}

// inOrder checks that a caller who comes late is told of all exits, in the
// order of their numbers.
func (n *node) inOrder(many int) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(n.ctx)
	defer cancel()
	all := make(chan monitorv1.Exit, many)
	go func() { _ = n.Events(ctx, func(e monitorv1.Exit) { all <- e }) }()
	var last uint64
	for i := range many {
		select {
		case e := <-all:
			if e.Seq <= last {
				n.t.Errorf("event %d after %d", e.Seq, last)
			}
			last = e.Seq
		case <-n.ctx.Done():
			n.t.Fatalf("%d of %d events came", i, many)
		}
	}
}

// stopped is for how long a process is stopped.
const stopped = 30 * time.Second

// A process that does not answer delays its callers as long as they want, and
// nothing else: what they were told is true afterwards.
func TestStop(t *testing.T) {
	t.Parallel()
	for _, which := range []string{"inner", "outer", "both"} {
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			if which == "both" {
				n.keep()
			}
			stop := n.dir + "/stop"
			n.start(n.container("p", n.bin, "print", "p", stop, "4"))
			path, open := n.valve("valve")
			n.start(n.shell("during", "read x < "+path+"; echo bye; exit 7"))
			i := n.info()
			pids := map[string][]int{"inner": {i.InnerPID}, "outer": {i.OuterPID}, "both": {i.InnerPID, i.OuterPID}}[which]
			for _, pid := range pids {
				if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = unix.Kill(pid, unix.SIGCONT) }()
				n.eventually("it stands still", func() bool { return isIn(pid, 'T') })
			}
			released := time.Now()
			end := released.Add(stopped)
			open()
			var wg sync.WaitGroup
			for j := range 100 {
				wg.Go(func() {
					id := fmt.Sprintf("s%d", j)
					req := n.shell(id, fmt.Sprintf("echo %d; exit %d", j, j))
					req.Timeout = 4 * stopped
					_, err := n.Start(n.ctx, req)
					if err != nil {
						t.Errorf("start %s: %v", id, err)
					}
				})
			}
			if which != "outer" {
				ctx, cancel := context.WithTimeout(n.ctx, time.Second)
				_, err := n.Info(ctx)
				cancel()
				if !errors.Is(err, errdefs.ErrDeadline) {
					t.Errorf("a caller without patience is told: %v", err)
				}
			} else if e := n.wait("during"); e.Code != 7 {
				t.Errorf("exit while the outer process is stopped: %+v", e)
			}
			time.Sleep(time.Until(end))
			resumed := time.Now()
			for _, pid := range pids {
				if err := unix.Kill(pid, unix.SIGCONT); err != nil {
					t.Fatal(err)
				}
			}
			wg.Wait()
			for j := range 100 {
				id := fmt.Sprintf("s%d", j)
				if e := n.wait(id); e.Code != j || e.Lost {
					t.Errorf("exit of %s: %+v", id, e)
				}
			}
			if err := os.WriteFile(stop, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			n.check([]string{"p"}, false)
			e := n.wait("during")
			if e.Code != 7 || n.text("during", "stdout") != "bye\n" {
				t.Errorf("exit while it was stopped: %+v", e)
			}
			// Somebody saw it: the other process, or the caller.
			if e.FinishedAt.Before(released) || e.FinishedAt.After(resumed) || e.Found {
				t.Errorf("ended at %s, found %t, not between %s and %s", e.FinishedAt, e.Found, released, resumed)
			}
			if after := n.info(); after.InnerPID != i.InnerPID || after.OuterPID != i.OuterPID {
				t.Errorf("after %+v came %+v", i, after)
			}
			n.forgetAll()
		})
	}
}

// Requests do not notice an upgrade.
func TestRequestsDuringUpgrades(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	first := n.info()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 15 {
				id := fmt.Sprintf("c%d-%d", w, i)
				if _, err := n.Start(n.ctx, n.shell(id, "echo here; exit 3")); err != nil {
					t.Errorf("start %s: %v", id, err)
					continue
				}
				if _, _, err := n.Exec(n.ctx, n.exec(id+"e", "exit 4"), [3]*os.File{}); err != nil {
					t.Errorf("exec in %s: %v", id, err)
				}
				for id, code := range map[string]int{id: 3, id + "e": 4} {
					e, err := n.Wait(n.ctx, id)
					if err != nil || e.Code != code {
						t.Errorf("exit of %s: %+v %v", id, e, err)
					}
				}
			}
		})
	}
	done := make(chan struct{})
	var upgrades sync.WaitGroup
	upgrades.Go(func() {
		for count := 0; ; count++ {
			select {
			case <-done:
				t.Logf("%d upgrades were asked for", count)
				return
			case <-time.After(time.Duration(rand.IntN(1000)) * time.Millisecond):
				_ = unix.Kill(first.OuterPID, unix.SIGHUP)
			}
		}
	})
	wg.Wait()
	close(done)
	upgrades.Wait()
	if last := n.info(); last.StartedAt.Equal(first.StartedAt) || last.InnerPID != first.InnerPID || last.OuterPID != first.OuterPID {
		t.Errorf("after %+v came %+v", first, last)
	}
	n.forgetAll()
}
