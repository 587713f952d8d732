package chaos

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/monitor/client"
	"fairlead.run/test/node"
)

// A log folder hangs in the monitor, which all containers share: it costs the
// container that logs there, and no other. An upgrade, which would have to wait
// for it at rest, is refused until the file system answers.
func TestLogsOnADeadMount(t *testing.T) {
	t.Parallel()
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	bystander := n.RunPod("crun").Start(node.Script(slowNumbers))
	dead := mountDead(t, filepath.Join(t.TempDir(), "dead"))
	s := n.RunPod("crun", func(c *runtimeapi.PodSandboxConfig) { c.LogDirectory = filepath.Join(dead.dir, "logs") })
	cfg := node.Script("sleep 1000")
	c := s.Create(cfg)
	dead.hang(deaf)
	start := func(ctx context.Context) error {
		_, err := n.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.ID})
		return err
	}
	again := hung(n, start, "start", objectName(s, cfg), "run")
	othersWork(n, "crun")
	upgradeRefused(n, bystander, dead.dir)
	othersWork(n, "crun")
	dead.free() // the folder is made where the mount was, if the error did not come first
	state := runtimeapi.ContainerState_CONTAINER_RUNNING
	if err := <-again; err != nil {
		state = runtimeapi.ContainerState_CONTAINER_EXITED
	}
	if st := c.Status(); st.State != state {
		t.Errorf("the container is %s: %s", st.State, st.Message)
	}
	before := askMonitor(n)
	requestUpgrade(n, before)
	node.Eventually(t, "the upgrade once the file system answers", func() bool { return askMonitor(n).StartedAt != before.StartedAt })
	othersWork(n, "crun")
	s.Remove()
	bystander.StopNumbers()
	if st := bystander.Wait(); st.ExitCode != 0 || st.Reason != "Completed" {
		t.Errorf("bystander: code %d, %s", st.ExitCode, st.Reason)
	}
	node.CheckNumbers(t, bystander.Log())
}

// upgradeRefused asks for an upgrade that cannot be: it is said which log is to
// blame, and what the bystander writes arrives as before.
func upgradeRefused(n *node.Node, bystander *node.Container, blame string) {
	n.T.Helper()
	before := askMonitor(n)
	requestUpgrade(n, before)
	said := filepath.Join(n.State, "monitor", "monitor.log")
	grown := func() int { return len(bystander.Log()) }
	had := grown()
	node.Eventually(n.T, "the upgrade is refused", func() bool {
		log, err := os.ReadFile(said)
		if err != nil {
			n.T.Fatal(err)
		}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "upgrade refused") && strings.Contains(line, blame) {
				return true
			}
		}
		return false
	})
	node.Eventually(n.T, "more output of the bystander", func() bool { return grown() > had })
	had = grown()
	node.Eventually(n.T, "output of the bystander after the refusal", func() bool { return grown() > had })
	if now := askMonitor(n); now.StartedAt != before.StartedAt || now.InnerPID != before.InnerPID || now.OuterPID != before.OuterPID {
		n.T.Errorf("the monitor was %+v and is %+v", before, now)
	}
}

func requestUpgrade(n *node.Node, now monitorv1.Info) {
	n.T.Helper()
	if err := syscall.Kill(now.OuterPID, syscall.SIGHUP); err != nil {
		n.T.Fatal(err)
	}
}

// askMonitor is what the monitor of a node says of itself.
func askMonitor(n *node.Node) monitorv1.Info {
	n.T.Helper()
	m, err := client.Ensure(n.Ctx(), client.Options{StateDir: n.State, Binary: filepath.Join(node.Bin, "fairlead-monitor")})
	if err != nil {
		n.T.Fatal(err)
	}
	i, err := m.Info(n.Ctx())
	if err != nil {
		n.T.Fatalf("ask the monitor: %v", err)
	}
	return i
}
