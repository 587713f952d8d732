package chaos

import (
	"context"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/test/node"
)

// TestExecsEndWithTheirDaemon kills the daemon while commands are being executed
// in a container, of which nobody will learn anything any more. The next daemon
// ends them, with what they have started, and nothing else.
func TestExecsEndWithTheirDaemon(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, handler string) {
		c := n.RunPod(handler).Start(node.Script("sleep 1111 & " + node.Numbers))
		go func() {
			_, _ = n.Runtime.ExecSync(context.Background(), &runtimeapi.ExecSyncRequest{
				ContainerId: c.ID, Cmd: []string{"sh", "-c", "sleep 2221 & sleep 2222; true"},
			})
		}()
		e, err := node.SPDYExecutor(c.ExecURL(&runtimeapi.ExecRequest{
			ContainerId: c.ID, Cmd: []string{"sleep", "2223"}, Tty: true, Stdin: true, Stdout: true,
		}))
		if err != nil {
			t.Fatal(err)
		}
		in, typed := io.Pipe()
		defer typed.Close()
		go func() {
			_ = e.StreamWithContext(context.Background(), remotecommand.StreamOptions{Stdin: in, Stdout: io.Discard, Tty: true})
		}()
		runs := func() (count int) {
			for line := range strings.Lines(c.Exec("ps")) {
				if f := strings.Fields(line); f[len(f)-2] == "sleep" && strings.HasPrefix(f[len(f)-1], "222") {
					count++
				}
			}
			return count
		}
		node.Eventually(t, "all run", func() bool { return runs() == 3 })
		n.Kill(syscall.SIGKILL)
		// An audit leaves them alone. The one on a terminal has lost that, and may
		// have ended.
		r, err := offline(t, n, "--repair")
		if found := codesOf(r.Findings); err != nil || len(found) > 0 && !slices.Equal(found, []string{"process-leftover"}) {
			t.Errorf("an audit without a daemon: %v\n%s", err, strings.Join(told(r.Findings), "\n"))
		}
		shell(t, "pgrep -fx 'sleep 2221'; pgrep -fx 'sleep 2222'")
		n.Start()
		node.Eventually(t, "none runs", func() bool { return runs() == 0 })
		if ps := c.Exec("ps"); !strings.Contains(ps, " sleep 1111") {
			t.Errorf("the container's own process is gone:\n%s", ps)
		}
		node.Eventually(t, "the monitor has forgotten them", func() bool {
			return measure(n)["processes on record"] == 1
		})
		if found := audit(t, n, adminv1.FsckRequest{}).Findings; len(found) > 0 {
			t.Errorf("an audit finds:\n%s", strings.Join(told(found), "\n"))
		}
		c.StopNumbers()
		if st := c.Wait(); st.ExitCode != 0 {
			t.Errorf("the container ended with %d, %s", st.ExitCode, st.Reason)
		}
		node.CheckNumbers(t, c.Log())
		c.Sandbox.Remove()
	})
}
