package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/monitor/client"
	"fairlead.run/test/node"
)

// nobody is the id of a pod or container that no record knows.
func nobody(i int) string { return strings.Repeat(fmt.Sprintf("%02x", 0xa0+i), 32) }

// hostPort publishes port 80 of a pod on a port of the node.
func hostPort(port int32) func(*runtimeapi.PodSandboxConfig) {
	return func(p *runtimeapi.PodSandboxConfig) {
		p.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: port}}
	}
}

// TestFsckLeftovers puts one of each kind on the host of a node with a pod that
// works all the while.
func TestFsckLeftovers(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	s := n.RunPod("", hostPort(31871))
	c := s.Start(node.Script(node.Numbers))
	own := ownCgroup(t, n, s)
	before := c.Status()
	wantInOrder(t, n)

	for i, tt := range []struct {
		name   string
		damage func(t *testing.T, id string)
		want   []string
		gone   func(id string) string // a path that must not be there afterwards
	}{
		{"folder of a pod", func(t *testing.T, id string) {
			shell(t, "mkdir -p "+n.State+"/pods/"+id+"/ns")
		}, []string{"folder-leftover"}, func(id string) string { return n.State + "/pods/" + id }},
		{"files of a pod", func(t *testing.T, id string) {
			shell(t, "mkdir -p "+n.Root+"/pods/"+id+"; echo > "+n.Root+"/pods/"+id+"/hosts")
		}, []string{"folder-leftover"}, func(id string) string { return n.Root + "/pods/" + id }},
		{"namespace", func(t *testing.T, id string) {
			shell(t, fmt.Sprintf("cd %s/pods; mkdir -p %s/ns; touch %s/ns/uts; unshare --uts=$PWD/%s/ns/uts true", n.State, id, id, id))
		}, []string{"folder-leftover", "namespace-leftover"}, func(id string) string { return n.State + "/pods/" + id }},
		{"shm", func(t *testing.T, id string) {
			shell(t, fmt.Sprintf("cd %s/pods; mkdir -p %s/shm; mount -t tmpfs shm %s/shm; echo > %s/shm/file", n.State, id, id, id))
		}, []string{"folder-leftover", "mount-leftover"}, func(id string) string { return n.State + "/pods/" + id }},
		{"mount in a bundle", func(t *testing.T, id string) {
			shell(t, fmt.Sprintf("cd %s/containers; mkdir -p %s/rootfs; mount -t tmpfs x %s/rootfs", n.State, id, id))
		}, []string{"bundle-leftover", "mount-leftover"}, func(id string) string { return n.State + "/containers/" + id }},
		{"FIFO", func(t *testing.T, id string) {
			shell(t, fmt.Sprintf("cd %s/containers; mkdir -p %s/io; mkfifo %s/io/stdout", n.State, id, id))
		}, []string{"bundle-leftover", "fifo-leftover"}, func(id string) string { return n.State + "/containers/" + id }},
		{"writable layer", func(t *testing.T, id string) {
			shell(t, fmt.Sprintf("cd %s/containers; mkdir -p %s/upper/etc; echo > %s/upper/etc/file", n.Root, id, id))
		}, []string{"writable-leftover"}, func(id string) string { return n.Root + "/containers/" + id }},
		{"folder of a checkpoint", func(t *testing.T, id string) {
			shell(t, fmt.Sprintf("mkdir -p %s/checkpoints/%s/checkpoint; echo > %s/checkpoints/%s/dump.log", n.Root, id, n.Root, id))
		}, []string{"checkpoint-leftover"}, func(id string) string { return n.Root + "/checkpoints/" + id }},
		{"cgroup with a process", func(t *testing.T, id string) {
			dir := own + "/pod" + id
			shell(t, "mkdir -p "+dir+"; sleep 1000 >/dev/null 2>&1 & echo $! >"+dir+"/cgroup.procs")
		}, []string{"cgroup-leftover"}, func(id string) string { return own + "/pod" + id }},
		{"cgroup of a container in that of the pod", func(t *testing.T, id string) {
			shell(t, "mkdir -p "+own+"/pod"+s.ID+"/"+id)
		}, []string{"cgroup-leftover"}, func(id string) string { return own + "/pod" + s.ID + "/" + id }},
		{"link", func(t *testing.T, id string) {
			shell(t, fmt.Sprintf("ip link add fl%.13s type veth peer name peer0; ip link set fl%.13s master %s", id, id, n.Bridge))
		}, []string{"link-leftover"}, func(id string) string { return fmt.Sprintf("/sys/class/net/fl%.13s", id) }},
		{"host port", func(t *testing.T, _ string) {
			shell(t, fmt.Sprintf("nft add element inet %s ports4 '{ tcp . 31872 : 10.1.2.3 . 80 }'", n.Bridge))
		}, []string{"element-leftover"}, nil},
		{"host port of one address", func(t *testing.T, _ string) {
			shell(t, fmt.Sprintf("nft add element inet %s ports6_bound '{ ::5 . udp . 31872 : fd00::7 . 80 }'", n.Bridge))
		}, []string{"element-leftover"}, nil},
		{"entry of the ledger", func(t *testing.T, id string) {
			shell(t, fmt.Sprintf("cd %s/network/attachments; sed s/%s/%s/g %s.json > %s.json", n.Root, s.ID, id, s.ID, id))
		}, []string{"attachment-leftover"}, func(id string) string { return n.Root + "/network/attachments/" + id + ".json" }},
		{"entry of the ledger that cannot be read", func(t *testing.T, id string) {
			shell(t, fmt.Sprintf("echo '{' > %s/network/attachments/%s.json", n.Root, id))
		}, []string{"attachment-leftover"}, func(id string) string { return n.Root + "/network/attachments/" + id + ".json" }},
		{"state of a runtime", func(t *testing.T, id string) {
			shell(t, fmt.Sprintf("mkdir -p %s/runtimes/crun/%s; echo '{' > %s/runtimes/crun/%s/status", n.State, id, n.State, id))
		}, []string{"state-leftover"}, func(id string) string { return n.State + "/runtimes/crun/" + id }},
		{"trial", func(t *testing.T, id string) {
			shell(t, fmt.Sprintf("mkdir -p %s/trials/crun-%.16s/rootfs", n.State, id))
		}, []string{"trial-leftover"}, func(id string) string { return fmt.Sprintf("%s/trials/crun-%.16s", n.State, id) }},
		{
			"process", func(t *testing.T, id string) { startForeign(t, n, id) },
			[]string{"bundle-leftover", "fifo-leftover", "process-leftover"},
			func(id string) string { return n.State + "/containers/" + id },
		},
		{"blob", func(t *testing.T, id string) {
			shell(t, fmt.Sprintf("echo > %s/content/blobs/sha256/%s", n.Root, id))
		}, []string{"blob-leftover"}, func(id string) string { return n.Root + "/content/blobs/sha256/" + id }},
		{"folder of a layer", func(t *testing.T, _ string) {
			shell(t, fmt.Sprintf("mkdir -p %s/snapshots/snapshots/9999/fs", n.Root))
		}, []string{"snapshot-leftover"}, func(string) string { return n.Root + "/snapshots/snapshots/9999" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.damage(t, nobody(i))
			wantFound(t, n, tt.want, nil)
			if tt.gone == nil {
				return
			}
			if _, err := os.Lstat(tt.gone(nobody(i))); err == nil {
				t.Errorf("%s is still there", tt.gone(nobody(i)))
			}
		})
	}

	after := c.Status()
	if after.State != runtimeapi.ContainerState_CONTAINER_RUNNING || after.StartedAt != before.StartedAt {
		t.Errorf("the pod that was there did not just go on: %v", after)
	}
	if got := c.Exec("echo", "works"); strings.TrimSpace(got) != "works" {
		t.Errorf("exec says %q", got)
	}
	c.StopNumbers()
	c.Wait()
	node.CheckNumbers(t, c.Log())
}

// startForeign lets the monitor follow a process that the daemon knows nothing
// of, as one of a container.
func startForeign(t *testing.T, n *node.Node, id string) {
	t.Helper()
	m, err := client.Ensure(t.Context(), client.Options{StateDir: n.State, Binary: filepath.Join(node.Bin, "fairlead-monitor")})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(n.State, "containers", id)
	shell(t, "mkdir -p "+dir)
	started, err := m.Start(t.Context(), monitorv1.StartRequest{
		ID: id, PIDFile: dir + "/pid", IODir: dir + "/io", Timeout: 20 * time.Second,
		Command: []string{"/bin/sh", "-c", "setsid sleep 1000 & echo $! >" + dir + "/pid"},
		Env:     []string{"PATH=/usr/bin:/bin"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		node.Eventually(t, "the process is gone", func() bool { return syscall.Kill(started.PID, 0) != nil })
	})
}
