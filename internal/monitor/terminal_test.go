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

// counted checks that a log has the numbers below n, each once and in order.
func (n *node) counted(id string, want int) {
	n.t.Helper()
	got := 0
	for line := range strings.Lines(n.text(id, "stdout")) {
		line = strings.TrimRight(line, "\r\n")
		if i, err := strconv.Atoi(line); err != nil || i != got {
			n.t.Fatalf("%s: line %q where %d was to be", id, line, got)
		}
		got++
	}
	if got != want {
		n.t.Errorf("%s: %d lines, not %d", id, got, want)
	}
}

// counting is the request for a container with a terminal that counts.
func (n *node) counting(id string, to int) monitorv1.StartRequest {
	req := n.terminal(id, "unused")
	req.Command = append(req.Command[:4], n.bin, "count", strconv.Itoa(to))
	return req
}

// What was read from a terminal is nowhere but in the monitor. Killed at each
// place within a step, again and again, it still writes each line once.
func TestKillWithinTerminalStep(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"expected", "read", "noted", "armed", "written"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			// The lines are so short that one read becomes several writes.
			n := newNode(t, failpoint.MonitorEnv+"=monitor.terminal."+place+"=kill@13")
			n.start(n.counting("a", 20000))
			if e := n.wait("a"); e.Code != 0 || e.Lost {
				t.Errorf("exit: %+v", e)
			}
			n.counted("a", 20000)
			n.died("inner process died")
		})
	}
}

// died checks that the monitor's log has the words.
func (n *node) died(words string) {
	n.t.Helper()
	log, err := os.ReadFile(n.dir + "/s/monitor/monitor.log")
	if err != nil || !strings.Contains(string(log), words) {
		n.t.Errorf("%q is not in the monitor's log: %v", words, err)
	}
}

// Output of terminals that cannot be written is kept over every kind of
// restart, and neighbours do not notice, however many they are.
func TestTerminalDiskFull(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	disk := n.smallDisk(2048)
	if err := os.WriteFile(disk+"/ballast", make([]byte, 3<<20), 0o600); err == nil {
		t.Fatal("the ballast is too small to fill the disk")
	}
	const many = 20
	var ids []string
	for i := range many {
		id := fmt.Sprintf("t%d", i)
		req := n.counting(id, 1000)
		req.LogPath = disk + "/" + id + ".log"
		n.start(req)
		ids = append(ids, id)
	}
	n.eventually("reports", func() bool {
		list, err := n.List(n.ctx)
		stuck := 0
		for _, p := range list {
			if strings.Contains(p.LogError, "no space left") {
				stuck++
			}
		}
		return err == nil && stuck == many
	})
	neighbour := func(id string) {
		t.Helper()
		n.start(n.container(id, n.bin, "count", "30000"))
		began := time.Now()
		n.wait(id)
		n.counted(id, 30000)
		t.Logf("the neighbour took %s", time.Since(began))
	}
	neighbour("before")
	started := n.info().StartedAt
	if err := unix.Kill(n.info().OuterPID, unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	n.eventually("the upgrade", func() bool {
		i, err := n.Info(n.ctx)
		return err == nil && i.StartedAt.After(started)
	})
	n.kill(n.info().InnerPID)
	n.info()
	before := n.info()
	n.kill(before.OuterPID)
	n.eventually("a new pair", func() bool {
		i, err := n.Info(n.ctx)
		return err == nil && i.OuterPID == before.InnerPID
	})
	neighbour("after")
	if err := os.Remove(disk + "/ballast"); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if e := n.wait(id); e.Code != 0 || e.Lost {
			t.Errorf("exit of %s: %+v", id, e)
		}
		n.eventually("the last line of "+id, func() bool {
			log, err := os.ReadFile(disk + "/" + id + ".log")
			return err == nil && strings.HasSuffix(string(log), " 999\r\n")
		})
		if err := os.Symlink(disk+"/"+id+".log", n.dir+"/"+id+".log"); err != nil {
			t.Fatal(err)
		}
		n.counted(id, 1000)
	}
	n.eventually("the end of the spare slots", func() bool {
		slots, err := os.ReadDir(n.dir + "/s/monitor/journal")
		return err == nil && len(slots) <= 4
	})
}
