package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// killMonitor kills both processes of the monitor, neither of which gets the
// chance to start the other again.
func killMonitor(n *node.Node) {
	n.T.Helper()
	now := askMonitor(n)
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, pid := range []int{now.OuterPID, now.InnerPID} {
			if err := syscall.Kill(pid, sig); err != nil {
				n.T.Fatal(err)
			}
		}
	}
	node.Eventually(n.T, "the end of the monitor", func() bool { return !lives(now.OuterPID) && !lives(now.InnerPID) })
}

// untilGo is a script that waits for letGo first.
func untilGo(script string) *runtimeapi.ContainerConfig {
	return node.Script("while [ ! -e /go ]; do usleep 10000; done; " + script)
}

func letGo(c *node.Container) {
	n := c.Sandbox.Node
	n.T.Helper()
	if err := os.WriteFile(filepath.Join(n.State, "containers", c.ID, "rootfs", "go"), nil, 0o600); err != nil {
		n.T.Fatal(err)
	}
}

// Daemon and monitor are killed together. Containers go on, and the next daemon
// has them as they are: no line of theirs is lost. How one ended that nobody saw is
// said to be unknown, and is never made up.
func TestEverybodyIsKilled(t *testing.T) {
	t.Parallel()
	node.UnderEach(t, func(t *testing.T, n *node.Node, handler string) {
		s := n.RunPod(handler)
		prints := s.Start(node.Script(slowNumbers))
		ends := s.Start(untilGo("echo bye; exit 9"))
		onTerminal := node.Script("trap 'exit 8' HUP; echo up; while :; do usleep 10000; done")
		onTerminal.Tty = true
		hungUp := s.Start(onTerminal)
		node.Eventually(t, "the trap", func() bool { return strings.Contains(hungUp.Log(), "up") })
		created := s.Create(node.Script("echo started"))
		pids := []int{pidOf(ends), pidOf(hungUp)}

		if err := syscall.Kill(n.Pid(), syscall.SIGSTOP); err != nil { // it would start another monitor
			t.Fatal(err)
		}
		killMonitor(n)
		n.Kill(syscall.SIGKILL)
		letGo(ends)
		node.Eventually(t, "the end of two containers", func() bool { return !lives(pids[0]) && !lives(pids[1]) })
		n.Start()
		allObserved(n)

		for c, told := range map[*node.Container]int32{ends: 9, hungUp: 8} {
			st := c.Wait()
			unknown := st.ExitCode == 255 && st.Reason == "ContainerStatusUnknown" && strings.Contains(st.Message, "not known how the process ended")
			if !unknown && (st.ExitCode != told || st.Reason != "Error") {
				t.Errorf("who ended meanwhile: code %d, %s: %s", st.ExitCode, st.Reason, st.Message)
			}
			if !strings.Contains(st.Message, "the time is when it was found") {
				t.Errorf("it does not say that its time is another: %s", st.Message)
			}
		}
		if log := ends.Log(); log != "" && log != "bye\n" {
			t.Errorf("log of who ended meanwhile: %q", log)
		}
		if st := prints.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Fatalf("who lived on is %s: %s", st.State, st.Message)
		}
		node.Grown(t, []*node.Container{prints})
		if got := strings.TrimSpace(prints.Exec("echo", "here")); got != "here" {
			t.Errorf("exec says %q", got)
		}
		if err := created.TryStart(); err != nil {
			t.Errorf("start what was made before: %v", err)
		}
		if st := created.Wait(); st.ExitCode != 0 || created.Log() != "started\n" {
			t.Errorf("what was made before: code %d, log %q", st.ExitCode, created.Log())
		}
		prints.StopNumbers()
		if st := prints.Wait(); !node.SaidLost(t, st) && (st.ExitCode != 0 || st.Reason != "Completed") {
			t.Errorf("who lived on: code %d, %s", st.ExitCode, st.Reason)
		}
		node.CheckNumbers(t, prints.Log())
		wantInOrder(t, n)
		s.Remove()
		wantInOrder(t, n)
	})
}

// A daemon holds what containers have that an earlier one has started, too: when
// the monitor as a whole dies, they lose neither a line nor their terminal.
func TestMonitorIsKilledAfterTheDaemon(t *testing.T) {
	t.Parallel()
	node.UnderEach(t, func(t *testing.T, n *node.Node, handler string) {
		const lines = "i=0; while [ $i -lt 500 ]; do i=$((i+1)); echo $i; done; echo end; "
		s := n.RunPod(handler)
		plain := s.Start(untilGo(lines + "exit 9"))
		cfg := untilGo(lines + "exit 8")
		cfg.Tty = true
		tty := s.Start(cfg)
		n.Kill(syscall.SIGKILL)
		n.Start()
		node.Eventually(t, "the next daemon holds what they have", func() bool {
			open := strings.Join(descriptors(t, n.Pid()), "\n")
			return strings.Contains(open, plain.ID) && strings.Contains(open, "ptmx")
		})
		killMonitor(n)
		letGo(plain)
		letGo(tty)
		for c, code := range map[*node.Container]int32{plain: 9, tty: 8} {
			if st := c.Wait(); !node.SaidLost(t, st) && (st.ExitCode != code || st.Reason != "Error") {
				t.Errorf("%d is %d, %s: %s", code, st.ExitCode, st.Reason, st.Message)
			}
			var log string
			node.Eventually(t, "the last line", func() bool {
				log = strings.ReplaceAll(c.Log(), "\r", "")
				return strings.HasSuffix(log, "end\n")
			})
			node.CheckNumbers(t, log)
		}
		s.Remove()
		wantInOrder(t, n)
	})
}
