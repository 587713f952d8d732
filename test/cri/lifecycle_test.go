package cri

import (
	"strings"
	"syscall"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

func TestRunStopRemove(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		c := s.Start(node.Script("trap 'exit 3' TERM; echo hello; while :; do sleep 0.1; done"))
		node.Eventually(t, "hello", func() bool { return strings.Contains(c.Log(), "hello") })
		if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING || st.StartedAt == 0 || st.CreatedAt > st.StartedAt || st.FinishedAt != 0 {
			t.Fatalf("%+v", st)
		}
		c.Stop(30)
		if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.ExitCode != 3 || st.FinishedAt < st.StartedAt || st.Reason != "Error" {
			t.Fatalf("%+v", st)
		}
		must(t, c.Log(), "hello")
		c.Remove()
		c.Remove() // idempotent
		s.Remove()
		s.Remove()
	})
}

func TestExitCodesAndSignals(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		for _, tt := range []struct {
			script string
			code   int32
			reason string
		}{
			{"exit 0", 0, "Completed"},
			{"exit 41", 41, "Error"},
			{"kill -9 $$; sleep 60", 0, ""},
		} {
			s := n.RunPod(h)
			c := s.Start(node.Script(tt.script))
			if tt.reason == "" { // the first process of a PID namespace cannot kill itself
				c.Stop(0)
				tt.code, tt.reason = 137, "Error"
			}
			if st := c.Wait(); st.ExitCode != tt.code || st.Reason != tt.reason {
				t.Errorf("%q: %d %s", tt.script, st.ExitCode, st.Reason)
			}
			s.Remove()
		}
	})
}

func TestStopSignal(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		cfg := node.Script("trap 'exit 7' USR1; trap 'exit 8' TERM; echo ready; while :; do sleep 0.1; done")
		cfg.StopSignal = runtimeapi.Signal_SIGNAL_SIGUSR1
		c := s.Start(cfg)
		node.Eventually(t, "ready", func() bool { return strings.Contains(c.Log(), "ready") })
		c.Stop(30)
		if st := c.Status(); st.ExitCode != 7 || st.StopSignal != runtimeapi.Signal_SIGNAL_SIGUSR1 {
			t.Fatalf("%+v", st)
		}
	})
}

func TestStopGoesOnToKillWhatIgnoresIt(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		c := s.Start(node.Script("trap '' TERM; echo ready; while :; do sleep 0.1; done"))
		node.Eventually(t, "ready", func() bool { return strings.Contains(c.Log(), "ready") })
		c.Stop(1)
		if st := c.Status(); st.ExitCode != 137 {
			t.Fatalf("%+v", st)
		}
	})
}

func TestDaemonKilledWhilePodsPrint(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	pods, ctrs := printers(n)
	for range 3 {
		node.Grown(t, ctrs)
		n.Kill(syscall.SIGKILL)
		node.Grown(t, ctrs) // they go on without it
		n.Start()
		for i, c := range ctrs {
			if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
				t.Fatalf("container %d after the restart: %+v", i, st)
			}
		}
	}
	finish(t, ctrs, false)
	for _, s := range pods {
		s.Remove()
	}
}

func TestMonitorKilledWhilePodsPrint(t *testing.T) {
	for _, which := range []string{"inner", "outer", "both"} {
		t.Run(which, func(t *testing.T) {
			n := node.Start(t, "")
			n.Pull(node.Busybox)
			pods, ctrs := printers(n)
			for range 3 {
				node.Grown(t, ctrs)
				n.KillMonitor(which)
				if which == "both" {
					// Nobody starts it but the daemon, when it needs it.
					late := n.RunPod("")
					late.Start(node.Script("true")).Wait()
					late.Remove()
				}
				node.Grown(t, ctrs)
			}
			finish(t, ctrs, which != "inner" && node.ExitsAreLost(t))
			for _, s := range pods {
				s.Remove()
			}
		})
	}
}

// printers runs three pods that print numbers.
func printers(n *node.Node) (pods []*node.Sandbox, ctrs []*node.Container) {
	n.T.Helper()
	for _, h := range []string{"runc", "crun", ""} {
		s := n.RunPod(h)
		pods = append(pods, s)
		ctrs = append(ctrs, s.Start(node.Script(node.Numbers)))
	}
	return pods, ctrs
}

// finish ends the printers, and checks their logs and exit codes, which may be
// said to be lost.
func finish(t *testing.T, ctrs []*node.Container, mayLose bool) {
	t.Helper()
	for _, c := range ctrs {
		c.StopNumbers()
		st := c.Wait()
		lost := mayLose && st.ExitCode == 255 && st.Reason == "ContainerStatusUnknown"
		if !lost && (st.ExitCode != 0 || st.Reason != "Completed") {
			t.Errorf("%+v", st)
		}
		t.Logf("%d lines", node.CheckNumbers(t, c.Log()))
	}
}
