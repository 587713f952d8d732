package monitor_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
)

// hanging is a start whose runtime command hangs, with one process in its group
// and one in a session of its own.
func (n *node) hanging(id string) monitorv1.StartRequest {
	req := n.shell(id, "")
	req.Command = []string{"/bin/sh", "-c", fmt.Sprintf("setsid sleep 98760 & touch %s; sleep 98761", n.hangs(id))}
	req.Timeout = time.Hour
	return req
}

func (n *node) hangs(id string) string { return n.dir + "/" + id + ".hangs" }

// hang sends a request that hangs, and returns when its command does.
func (n *node) hang(req monitorv1.StartRequest) <-chan error {
	n.t.Helper()
	failed := make(chan error, 1)
	go func() {
		_, err := n.Start(n.ctx, req)
		failed <- err
	}()
	n.awaitHang(req.ID)
	return failed
}

func (n *node) awaitHang(id string) {
	n.t.Helper()
	n.eventually("the runtime command", func() bool {
		_, err := os.Stat(n.hangs(id))
		return err == nil
	})
}

// giveUpUntil gives a start up until its request has failed, as callers do that do
// not know whether the monitor has heard of it, and checks that nothing is left.
func (n *node) giveUpUntil(id string, failed <-chan error) {
	n.t.Helper()
	n.eventually("the start fails", func() bool {
		if err := n.GiveUp(n.ctx, id); err != nil && !errors.Is(err, errdefs.ErrNotFound) && !errors.Is(err, errdefs.ErrPrecondition) {
			n.t.Errorf("give up: %v", err)
		}
		select {
		case err := <-failed:
			if !errors.Is(err, errdefs.ErrPrecondition) || !strings.Contains(err.Error(), "given up") {
				n.t.Errorf("the start that was given up: %v", err)
			}
			return true
		default:
			return false
		}
	})
	if _, err := n.Find(n.ctx, id); !errors.Is(err, errdefs.ErrNotFound) {
		n.t.Errorf("the monitor knows it still: %v", err)
	}
	n.wantNoSleepers()
	if _, err := os.Stat(n.dir + "/" + id + ".io/stdout"); err == nil {
		n.t.Error("a FIFO is left")
	}
}

// sleepers are the command lines of what lives of a command that hangs.
func (n *node) sleepers() (all []string) {
	found, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range found {
		env, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(env), "FAIRLEAD_TEST_HANGS="+n.dir+"\x00") {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
			all = append(all, string(line))
		}
	}
	return all
}

// wantNoSleepers checks that nothing of a command that hangs is left.
func (n *node) wantNoSleepers() {
	n.t.Helper()
	for _, line := range n.sleepers() {
		n.t.Errorf("%q is left", line)
	}
}

// A start that hangs is given up: the command is killed with all that it has
// started, the request fails, and the id is free.
func TestGiveUpAStart(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	req := n.hanging("a")
	req.Env = append(req.Env, "FAIRLEAD_TEST_HANGS="+n.dir)
	n.giveUpUntil("a", n.hang(req))
	n.start(n.shell("a", "exec sleep 1000"))
	if err := n.GiveUp(n.ctx, "a"); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Errorf("give up one that runs: %v", err)
	}
	if err := n.Signal(n.ctx, "a", 9, false); err != nil {
		t.Errorf("it does not run any more: %v", err)
	}
	n.wait("a")
	if err := n.GiveUp(n.ctx, "b"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("give up what nobody knows: %v", err)
	}
}

func TestGiveUpAnExec(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	req := n.exec("e", "")
	req.Command, req.Timeout = n.hanging("e").Command, time.Hour
	req.Env = append(req.Env, "FAIRLEAD_TEST_HANGS="+n.dir)
	failed := n.execute(req)
	n.awaitHang("e")
	n.giveUpUntil("e", failed)
}

func (n *node) execute(req monitorv1.ExecRequest) <-chan error {
	failed := make(chan error, 1)
	go func() {
		_, _, err := n.Exec(n.ctx, req, [3]*os.File{})
		failed <- err
	}()
	return failed
}

// leaving is an exec that starts one process which leaves parent and session, and
// another one that does not.
func (n *node) leaving(id string) monitorv1.ExecRequest {
	mark := monitorv1.MinMark + rand.Uint64N(monitorv1.MinMark)
	req := n.exec(id, fmt.Sprintf("prlimit --pid $$ --rttime=%d; (setsid sleep 98762 &); sleep 98763", mark))
	req.Mark = mark
	req.Env = append(req.Env, "FAIRLEAD_TEST_HANGS="+n.dir)
	return req
}

func (n *node) awaitSleepers() {
	n.t.Helper()
	n.eventually("the command runs", func() bool {
		all := strings.Join(n.sleepers(), "\n")
		return strings.Contains(all, "sleep\x0098762") && strings.Contains(all, "sleep\x0098763")
	})
}

// A client may go after its command has begun and before the runtime's has ended.
func TestGiveUpAnExecThatHasBegun(t *testing.T) {
	t.Parallel()
	for name, pidFile := range map[string]string{"the pid is known": "e.pid", "the pid is not": "none.pid"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			req := n.leaving("e")
			req.Command = append([]string{"/bin/sh", "-c", `"$0" "$@" && sleep 98761`}, req.Command...)
			req.PIDFile = filepath.Join(n.dir, pidFile)
			failed := n.execute(req)
			n.awaitSleepers()
			n.giveUpUntil("e", failed)
		})
	}
	t.Run("the runtime has ended", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		gate := filepath.Join(dir, "gate")
		n := newNode(t, failpoint.MonitorEnv+"=monitor.start.command-ended=wait:"+gate+"!"+filepath.Join(dir, "once"))
		failed := n.execute(n.leaving("e"))
		n.awaitSleepers()
		n.eventually("it is given up", func() bool { return n.GiveUp(n.ctx, "e") == nil })
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		n.giveUpUntil("e", failed)
	})
}

// So is one that an earlier process of the monitor has begun.
func TestGiveUpAStartOfAnEarlierMonitor(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	req := n.hanging("a")
	req.Env = append(req.Env, "FAIRLEAD_TEST_HANGS="+n.dir)
	failed := n.hang(req)
	old := n.info().InnerPID
	n.kill(old)
	n.eventually("another inner process", func() bool {
		i, err := n.Info(n.ctx)
		return err == nil && i.InnerPID != old
	})
	n.giveUpUntil("a", failed)
	n.start(n.shell("a", "exit 6"))
	if e := n.wait("a"); e.Code != 6 {
		t.Errorf("exit %+v", e)
	}
}
