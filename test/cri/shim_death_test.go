package cri

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// A shim that dies, hangs or answers garbage costs its own pod, which can be
// removed. Pods beside it, of the same handler and of runc, notice nothing.
func TestShimDeath(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, n *node.Node, s *node.Sandbox){
		"dies":    func(t *testing.T, n *node.Node, _ *node.Sandbox) { signalShims(t, n, syscall.SIGKILL) },
		"hangs":   func(t *testing.T, n *node.Node, _ *node.Sandbox) { signalShims(t, n, syscall.SIGSTOP) },
		"garbles": garble,
	} {
		t.Run(name, func(t *testing.T) {
			eachShim(t, func(t *testing.T, n *node.Node) {
				s := n.RunPod("shim")
				victim := s.Start(node.Script(forever))
				ready(t, victim)
				harm(t, n, s)
				// The harm is done to the one shim that there is; now come the others.
				beside := []*node.Container{n.RunPod("runc").Start(node.Script(forever)), n.RunPod("shim").Start(node.Script(forever))}
				if name == "garbles" {
					wantGarbage(t, victim)
				}
				if name != "dies" {
					victim.Stop(1)
				}
				if st := victim.Wait(); st.ExitCode != 137 {
					t.Errorf("a container without a shim: %+v", st)
				}
				s.Remove()
				for _, c := range beside {
					ready(t, c)
					must(t, c.Exec("echo", "fine"), "fine")
					c.Stop(30)
					if st := c.Status(); st.ExitCode != 3 {
						t.Errorf("a container of another pod: %+v", st)
					}
					c.Sandbox.Remove()
				}
				if got := shimPIDs(t, n); len(got) != 0 {
					t.Errorf("shims are left: %v", got)
				}
				if out, err := n.CLI("fsck"); err != nil {
					t.Errorf("fsck: %v: %s", err, out)
				}
			})
		})
	}
}

func signalShims(t *testing.T, n *node.Node, sig syscall.Signal) {
	t.Helper()
	pids := shimPIDs(t, n)
	if len(pids) == 0 {
		t.Fatal("there is no shim")
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
	}
}

// garble takes the place of the socket of a pod's shim and answers each call with
// nonsense.
func garble(t *testing.T, n *node.Node, s *node.Sandbox) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(n.State, "runtimes", "shim", s.ID, "task.json"))
	if err != nil {
		t.Fatal(err)
	}
	var record struct{ Address string }
	if err := json.Unmarshal(data, &record); err != nil {
		t.Fatal(err)
	}
	path := strings.TrimPrefix(record.Address, "unix://")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			// The call comes first: who writes to what is closed has nothing to read.
			_, _ = conn.Read(make([]byte, 1))
			_, _ = io.WriteString(conn, strings.Repeat("\x00\x00\x00\x05garbage", 10))
			_ = conn.Close()
		}
	}()
}

func wantGarbage(t *testing.T, c *node.Container) {
	t.Helper()
	_, err := c.Sandbox.Node.Runtime.ExecSync(c.Sandbox.Node.Ctx(), &runtimeapi.ExecSyncRequest{ContainerId: c.ID, Cmd: []string{"true"}})
	if err == nil || !strings.Contains(err.Error(), "garbage") {
		t.Errorf("exec by a shim that answers garbage: %v", err)
	}
}
