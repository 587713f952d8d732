package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// The programs whose descriptors are counted.
const (
	theDaemon    = "the daemon"
	outerMonitor = "the outer monitor"
	innerMonitor = "the inner monitor"
)

// self is what daemon and monitor say of themselves.
type self struct {
	Daemon  struct{ PID, Goroutines, Heap int }
	Monitor struct{ OuterPID, InnerPID, Goroutines, Processes, Heap int }
}

func (s self) pids() map[string]int {
	return map[string]int{theDaemon: s.Daemon.PID, outerMonitor: s.Monitor.OuterPID, innerMonitor: s.Monitor.InnerPID}
}

func askSelf(n *node.Node) (s self) {
	t := n.T
	t.Helper()
	r, err := n.Runtime.Status(n.Ctx(), &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(json.Unmarshal([]byte(r.Info["process"]), &s.Daemon), json.Unmarshal([]byte(r.Info["monitor"]), &s.Monitor)); err != nil {
		t.Fatal(err)
	}
	if s.Daemon.PID != n.Pid() || s.Daemon.Goroutines == 0 || s.Monitor.Goroutines == 0 || s.Monitor.InnerPID == 0 || s.Monitor.OuterPID == 0 {
		t.Fatalf("daemon and monitor: %+v", s)
	}
	return s
}

// descriptors are what a process has open, by number.
func descriptors(t *testing.T, pid int) (open []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		to, _ := os.Readlink(filepath.Join(dir, e.Name()))
		open = append(open, e.Name()+" "+to)
	}
	return open
}

// withoutOwnPipes leaves out pipes of which the process has both ends: they are
// kept for the next who copies, as many as have copied at the same time.
func withoutOwnPipes(open []string) []string {
	ends := map[string]int{}
	target := func(line string) string { return line[strings.Index(line, " ")+1:] }
	for _, line := range open {
		ends[target(line)]++
	}
	return slices.DeleteFunc(open, func(line string) bool {
		to := target(line)
		return strings.HasPrefix(to, "pipe:") && ends[to] == 2
	})
}

// survivors are the programs that live while another is killed again and again.
// They may hold no more after one time than after the first.
type survivors struct {
	had map[string]int // descriptors, after the first time
}

// wantNoMore is called each time, when nothing runs that did not before. What is
// about to be closed is waited for.
func (s *survivors) wantNoMore(t *testing.T, n *node.Node, names ...string) {
	t.Helper()
	pids := askSelf(n).pids()
	if s.had == nil {
		s.had = map[string]int{}
		for _, name := range names {
			s.had[name] = steady(func() int { return len(withoutOwnPipes(descriptors(t, pids[name]))) })
		}
		return
	}
	for _, name := range names {
		had := s.had[name]
		more := settled(func() []string {
			open := withoutOwnPipes(descriptors(t, pids[name]))
			if len(open) <= had {
				return nil
			}
			return open
		})
		if len(more) > 0 {
			t.Errorf("%s has %d descriptors, and had %d:\n%s", name, len(more), had, strings.Join(named(pids[name], more), "\n"))
			s.had[name] = len(more) // told once
		}
	}
}

// named adds to sockets what the kernel says of them.
func named(pid int, open []string) []string {
	said := map[string]string{}
	for _, family := range []string{"unix", "tcp"} {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, family))
		for line := range strings.Lines(string(data)) {
			for _, field := range strings.Fields(line) {
				said["socket:["+field+"]"] = family + " " + strings.TrimSpace(line)
			}
		}
	}
	var out []string
	for _, line := range open {
		_, to, _ := strings.Cut(line, " ")
		out = append(out, line+" "+said[to])
	}
	return out
}

// steady is the number that stays the same for a while.
func steady(count func() int) int {
	last := count()
	for same := 0; same < 10; same++ {
		time.Sleep(20 * time.Millisecond)
		if now := count(); now != last {
			last, same = now, 0
		}
	}
	return last
}
