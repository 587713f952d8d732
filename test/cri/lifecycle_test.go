package cri

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestRunStopRemove(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		s := n.runPod(h)
		c := s.start(script("trap 'exit 3' TERM; echo hello; while :; do sleep 0.1; done"))
		eventually(t, "hello", func() bool { return strings.Contains(c.log(), "hello") })
		if st := c.status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING || st.StartedAt == 0 || st.CreatedAt > st.StartedAt || st.FinishedAt != 0 {
			t.Fatalf("%+v", st)
		}
		c.stop(30)
		if st := c.status(); st.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.ExitCode != 3 || st.FinishedAt < st.StartedAt || st.Reason != "Error" {
			t.Fatalf("%+v", st)
		}
		must(t, c.log(), "hello")
		c.remove()
		c.remove() // idempotent
		s.remove()
		s.remove()
	})
}

func TestExitCodesAndSignals(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		for _, tt := range []struct {
			script string
			code   int32
			reason string
		}{
			{"exit 0", 0, "Completed"},
			{"exit 41", 41, "Error"},
			{"kill -9 $$; sleep 60", 0, ""},
		} {
			s := n.runPod(h)
			c := s.start(script(tt.script))
			if tt.reason == "" { // the first process of a PID namespace cannot kill itself
				c.stop(0)
				tt.code, tt.reason = 137, "Error"
			}
			if st := c.wait(); st.ExitCode != tt.code || st.Reason != tt.reason {
				t.Errorf("%q: %d %s", tt.script, st.ExitCode, st.Reason)
			}
			s.remove()
		}
	})
}

func TestStopSignal(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		s := n.runPod(h)
		cfg := script("trap 'exit 7' USR1; trap 'exit 8' TERM; echo ready; while :; do sleep 0.1; done")
		cfg.StopSignal = runtimeapi.Signal_SIGNAL_SIGUSR1
		c := s.start(cfg)
		eventually(t, "ready", func() bool { return strings.Contains(c.log(), "ready") })
		c.stop(30)
		if st := c.status(); st.ExitCode != 7 || st.StopSignal != runtimeapi.Signal_SIGNAL_SIGUSR1 {
			t.Fatalf("%+v", st)
		}
	})
}

func TestStopGoesOnToKillWhatIgnoresIt(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		s := n.runPod(h)
		c := s.start(script("trap '' TERM; echo ready; while :; do sleep 0.1; done"))
		eventually(t, "ready", func() bool { return strings.Contains(c.log(), "ready") })
		c.stop(1)
		if st := c.status(); st.ExitCode != 137 {
			t.Fatalf("%+v", st)
		}
	})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// numbers prints 1, 2, 3, ... as fast as it may, and stops at a file.
const numbers = `i=0; while [ ! -e /stop ]; do i=$((i+1)); echo $i; [ $((i%50)) = 0 ] && usleep 5000; done; echo end`

// stopNumbers ends the script. The exec may die with the container that it ends.
func (c *container) stopNumbers() {
	c.s.n.t.Helper()
	_, err := c.s.n.runtime.ExecSync(c.s.n.ctx(), &runtimeapi.ExecSyncRequest{ContainerId: c.id, Cmd: []string{"touch", "/stop"}})
	if err != nil {
		c.s.n.t.Fatal(err)
	}
}

// checkNumbers fails if a line is lost, doubled or cut.
func checkNumbers(t *testing.T, log string) int {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(log, "\n"), "\n")
	for i, line := range lines[:len(lines)-1] {
		if line != fmt.Sprint(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
	if lines[len(lines)-1] != "end" {
		t.Fatalf("the last line is %q", lines[len(lines)-1])
	}
	return len(lines) - 1
}

func TestDaemonKilledWhilePodsPrint(t *testing.T) {
	n := startNode(t, "")
	n.pull(busybox)
	pods, ctrs := printers(n)
	for range 3 {
		grown(t, ctrs)
		n.kill(syscall.SIGKILL)
		grown(t, ctrs) // they go on without it
		n.start()
		for i, c := range ctrs {
			if st := c.status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
				t.Fatalf("container %d after the restart: %+v", i, st)
			}
		}
	}
	finish(t, ctrs)
	for _, s := range pods {
		s.remove()
	}
}

func TestMonitorKilledWhilePodsPrint(t *testing.T) {
	for _, which := range []string{"inner", "outer", "both"} {
		t.Run(which, func(t *testing.T) {
			n := startNode(t, "")
			n.pull(busybox)
			pods, ctrs := printers(n)
			for range 3 {
				grown(t, ctrs)
				n.killMonitor(which)
				if which == "both" {
					// Nobody starts it but the daemon, when it needs it.
					late := n.runPod("")
					late.start(script("true")).wait()
					late.remove()
				}
				grown(t, ctrs)
			}
			finish(t, ctrs)
			for _, s := range pods {
				s.remove()
			}
		})
	}
}

// printers runs three pods that print numbers.
func printers(n *node) (pods []*sandbox, ctrs []*container) {
	n.t.Helper()
	for _, h := range []string{"runc", "crun", ""} {
		s := n.runPod(h)
		pods = append(pods, s)
		ctrs = append(ctrs, s.start(script(numbers)))
	}
	return pods, ctrs
}

// grown waits until each has printed more than it had.
func grown(t *testing.T, ctrs []*container) {
	t.Helper()
	for _, c := range ctrs {
		size := func() int64 {
			st, err := os.Stat(c.logPath())
			if err != nil {
				t.Fatal(err)
			}
			return st.Size()
		}
		before := size()
		eventually(t, "more output", func() bool { return size() > before+1000 })
	}
}

// finish ends the printers, and checks their logs and exit codes.
func finish(t *testing.T, ctrs []*container) {
	t.Helper()
	for _, c := range ctrs {
		c.stopNumbers()
		if st := c.wait(); st.ExitCode != 0 || st.Reason != "Completed" {
			t.Errorf("%+v", st)
		}
		t.Logf("%d lines", checkNumbers(t, c.log()))
	}
}
