package chaos

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// crash does to a node what a power cut does: no process and no mount of it is
// left, what was on the tmpfs is gone, and what is on the disk stays. A kernel
// that has really started anew has no links and no nftables either, and another
// boot id; with links, only the daemon died and somebody deleted its state.
func crash(n *node.Node, withLinks bool) {
	n.T.Helper()
	killAll(n)
	unmountBelow(n.T, n.Dir)
	if err := os.RemoveAll(n.State); err != nil {
		n.T.Fatal(err)
	}
	dropEmptyCgroups(n)
	if withLinks {
		return
	}
	for _, command := range [][]string{
		{"ip", "link", "delete", n.Bridge},
		{"ip", "link", "delete", n.CNIBridge()},
		{"nft", "delete", "table", "inet", n.Bridge},
	} {
		_ = exec.Command(command[0], command[1:]...).Run() // only one of the networks is there
	}
	ageLedger(n)
}

// killAll ends the daemon, its monitor and all containers.
func killAll(n *node.Node) {
	n.T.Helper()
	n.Kill(syscall.SIGKILL)
	node.Eventually(n.T, "the node has no process", func() bool {
		pids := append(processesOf(n), monitorOf(n)...) // one half of it replaces the other
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended with the others
		}
		return len(pids) == 0
	})
}

// processesOf are the processes in the containers of the node, by their root
// file systems.
func processesOf(n *node.Node) (pids []int) {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		var pid int
		mounts, err := os.ReadFile(filepath.Join(p, "mountinfo"))
		if err != nil || p == fmt.Sprintf("/proc/%d", os.Getpid()) {
			continue
		}
		first, _, _ := bytes.Cut(mounts, []byte("\n"))
		if _, err := fmt.Sscanf(p, "/proc/%d", &pid); err == nil && bytes.Contains(first, []byte(n.Root)) && lives(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// monitorOf are the processes of the node's monitor.
func monitorOf(n *node.Node) (pids []int) {
	for _, what := range n.Left() {
		var pid int
		if _, err := fmt.Sscanf(what, "process %d ", &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// dropEmptyCgroups removes the cgroups of the node's pods, all empty by now.
func dropEmptyCgroups(n *node.Node) {
	for _, what := range n.Left() {
		if path, ok := strings.CutPrefix(what, "cgroup "); ok {
			defer os.Remove(path) // those below are listed after those above
		}
	}
}

// ageLedger makes the attachments on the disk those of an earlier boot.
func ageLedger(n *node.Node) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		n.T.Fatal(err)
	}
	entries, err := filepath.Glob(filepath.Join(n.Root, "network/attachments/*.json"))
	if err != nil || len(entries) == 0 {
		n.T.Fatalf("the ledger has nothing: %v", err)
	}
	for _, path := range entries {
		b, err := os.ReadFile(path)
		if err != nil {
			n.T.Fatal(err)
		}
		old := bytes.ReplaceAll(b, bytes.TrimSpace(boot), []byte("00000000-0000-4000-8000-000000000000"))
		if bytes.Equal(old, b) {
			n.T.Fatalf("%s does not name the boot", path)
		}
		if err := os.WriteFile(path, old, 0o600); err != nil {
			n.T.Fatal(err)
		}
	}
}

// lastPort is the last that a test here has used: nodes share the host's.
var lastPort atomic.Int32

func init() { lastPort.Store(18100) }

// After a reboot everything that the last boot held is released: addresses,
// host ports, writable layers, and the images that containers used.
func TestReboot(t *testing.T) {
	t.Parallel()
	for network, options := range map[string][]node.Option{"built-in": nil, "CNI": {node.Conflist}} {
		for how, withLinks := range map[string]bool{"a new kernel": false, "only the state is gone": true} {
			t.Run(network+", "+how, func(t *testing.T) {
				t.Parallel()
				n := node.Start(t, "", options...)
				id := n.Pull(node.Busybox)
				own := lastPort.Add(1)
				ported := func(p *runtimeapi.PodSandboxConfig) {
					p.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: own}}
				}
				var before []*node.Sandbox
				for _, h := range node.Handlers {
					s, c := inhabited(n, h)
					c.Exec("sh", "-c", "echo kept > /file")
					volume := sleeper()
					volume.Mounts = []*runtimeapi.Mount{{ContainerPath: "/image", Readonly: true, Image: &runtimeapi.ImageSpec{Image: id}}}
					s.Start(volume).Exec("ls", "/image/bin/busybox")
					before = append(before, s)
				}
				port, _ := inhabited(n, "crun", ported)
				ended := n.RunPod("runc")
				ended.Start(node.Script("exit 3")).Wait()
				before = append(before, port, ended)
				for _, s := range before {
					if len(s.IPs()) == 0 {
						t.Fatal("a pod has no address to be released")
					}
				}
				crash(n, withLinks)

				n.Start()
				r, err := n.Runtime.ListPodSandbox(n.Ctx(), &runtimeapi.ListPodSandboxRequest{})
				if err != nil || len(r.Items) > 0 {
					t.Fatalf("pods of the last boot are listed: %v, %v", r.GetItems(), err)
				}
				node.Eventually(t, "everything of the last boot is released", func() bool { return len(n.OfPods()) == 0 })
				if _, err := n.Images.RemoveImage(n.Ctx(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: id}}); err != nil {
					t.Errorf("remove the image that only containers of the last boot used: %v", err)
				}
				node.Eventually(t, "its layers are gone", func() bool { return len(n.OfImages()) == 0 })
				n.Pull(node.Busybox)
				again, c := inhabited(n, "crun", ported)
				if got := strings.TrimSpace(c.Exec("sh", "-c", "cat /file || true")); got == "kept" {
					t.Error("a new container has the files of an old one")
				}
				again.Remove()
			})
		}
	}
}
