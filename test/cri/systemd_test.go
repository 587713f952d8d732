package cri

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/hostprep"
	"fairlead.run/test/node"
)

// TestUnderSystemd runs what has to do with cgroups where systemd makes them.
func TestUnderSystemd(t *testing.T) {
	node.UnderSystemd(t, "^(TestSystemd.*|TestResources|TestUpdateBeforeStart|TestOutOfMemory|TestCgroupParent|TestPodLimits|"+
		"TestStats.*|TestDaemonKilledWhilePodsPrint|TestMonitorKilledWhilePodsPrint)$")
}

// cgroupRoot is where the cgroups are that account for memory.
func cgroupRoot() string {
	if isUnified() {
		return "/sys/fs/cgroup"
	}
	return "/sys/fs/cgroup/memory"
}

// stopSlice stops a slice that a test named as a parent, as the kubelet stops
// those that it made.
func stopSlice(t *testing.T, name string) {
	t.Helper()
	if out, err := exec.Command("systemctl", "stop", name).CombinedOutput(); err != nil {
		t.Errorf("stop %s: %v: %s", name, err, out)
	}
}

// underSystemd runs f under each handler on a node whose cgroups systemd makes.
func underSystemd(t *testing.T, f func(t *testing.T, n *node.Node, handler string)) {
	t.Helper()
	if !hostprep.BySystemd() {
		t.Skip("needs a host with systemd as process 1")
	}
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	for _, h := range node.Handlers {
		t.Run(h, func(t *testing.T) {
			outer := n.T
			n.T = t
			defer func() { n.T = outer }()
			f(t, n, h)
		})
	}
}

// eats is a container that soon wants more memory than it may have.
func eats() *runtimeapi.ContainerConfig {
	cfg := node.Script("x=a; while :; do x=$x$x; done")
	limited(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 32 << 20, MemorySwapLimitInBytes: 32 << 20})(cfg)
	return cfg
}

func wantEnd(t *testing.T, what string, st *runtimeapi.ContainerStatus, reason string) {
	t.Helper()
	if st.Reason != reason || st.ExitCode != 137 {
		t.Errorf("%s: reason %s, exit code %d; want %s, 137", what, st.Reason, st.ExitCode, reason)
	}
}

// TestSystemdOutOfMemory: systemd removes a container's cgroup, with the count
// of kills in it, before anybody is told that the container has ended.
func TestSystemdOutOfMemory(t *testing.T) {
	underSystemd(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		idle := s.Start(node.Script("sleep 1000"))
		for round := range 20 {
			what := fmt.Sprintf("round %d", round)
			beside := s.Start(node.Script("sleep 1000 & wait $!; exit $?"))
			victim := s.Start(eats())
			wantEnd(t, what, victim.Wait(), "OOMKilled")
			// The shell that kills may go with the container, whose end this is.
			if _, err := n.Runtime.ExecSync(n.Ctx(), &runtimeapi.ExecSyncRequest{
				ContainerId: beside.ID, Cmd: []string{"sh", "-c", "kill -9 $(pidof sleep)"},
			}); err != nil {
				t.Fatal(err)
			}
			wantEnd(t, what+", its neighbour", beside.Wait(), "Error")
		}
		if st := idle.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("the idle neighbour: %+v", st)
		}
		idle.Stop(0)
		wantEnd(t, "the idle neighbour", idle.Wait(), "Error")
		s.Remove()
	})
}

// TestSystemdOutOfMemoryAtOnce has containers end in the same moment, some for
// want of memory and some by somebody's SIGKILL.
func TestSystemdOutOfMemoryAtOnce(t *testing.T) {
	underSystemd(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		var victims, beside []*node.Container
		for range 3 {
			cfg := eats()
			cfg.Command[2] = "until [ -e /go/now ]; do sleep 0.05; done; " + cfg.Command[2]
			cfg.Mounts = []*runtimeapi.Mount{{ContainerPath: "/go", HostPath: n.Dir, Readonly: true}}
			victims = append(victims, s.Start(cfg))
			beside = append(beside, s.Start(node.Script("sleep 1000")))
		}
		if err := os.WriteFile(filepath.Join(n.Dir, "now"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for _, c := range beside {
			all.Go(func() { c.Stop(0) })
		}
		for i, c := range victims {
			wantEnd(t, fmt.Sprintf("victim %d", i), c.Wait(), "OOMKilled")
		}
		all.Wait()
		for i, c := range beside {
			wantEnd(t, fmt.Sprintf("neighbour %d", i), c.Wait(), "Error")
		}
		s.Remove()
		if err := os.Remove(filepath.Join(n.Dir, "now")); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSystemdOutOfMemoryUnseen has the monitor die with a container running,
// which then ends while there may be no monitor.
func TestSystemdOutOfMemoryUnseen(t *testing.T) {
	underSystemd(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		for round := range 5 {
			cfg := eats()
			cfg.Command[2] = "sleep 0.1; " + cfg.Command[2]
			victim := s.Start(cfg)
			n.KillMonitor("inner")
			wantEnd(t, fmt.Sprintf("round %d", round), victim.Wait(), "OOMKilled")
		}
		s.Remove()
	})
}

// TestSystemdSlices: the slices of pods that name no parent go with the last
// pod, and never with a pod in them.
func TestSystemdSlices(t *testing.T) {
	slices := func() (found []string) {
		found, _ = filepath.Glob(cgroupRoot() + "/fairlead.slice/fairlead-*.slice")
		return found
	}
	underSystemd(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		c := s.Start(node.Script("sleep 1000"))
		found := slices()
		if len(found) != 1 {
			t.Fatalf("slices with a pod: %v", found)
		}
		c.Remove()
		s.Remove()
		node.Eventually(t, "the slices to be gone", func() bool { return len(slices()) == 0 })
		// A slice that systemd has started without being told to stop it.
		if out, err := exec.Command("systemctl", "start", filepath.Base(found[0])).CombinedOutput(); err != nil {
			t.Fatalf("start %s: %v: %s", found[0], err, out)
		}
		n.RunPod(h).Remove()
		node.Eventually(t, "the slice that was there before to be gone", func() bool { return len(slices()) == 0 })
		// Pods that begin as the last one ends.
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for range 15 {
					cfg := n.PodConfig()
					r, err := n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: cfg, RuntimeHandler: h})
					if err != nil {
						t.Errorf("run a pod: %v", err)
						return
					}
					dir, _ := filepath.Glob(cgroupRoot() + "/fairlead.slice/fairlead-*.slice/*" + r.PodSandboxId + ".slice")
					if len(dir) != 1 {
						t.Errorf("pod %s has the cgroups %v", r.PodSandboxId, dir)
					}
					if _, err := n.Runtime.StopPodSandbox(n.Ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: r.PodSandboxId}); err != nil {
						t.Errorf("stop a pod: %v", err)
					}
					if _, err := n.Runtime.RemovePodSandbox(n.Ctx(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: r.PodSandboxId}); err != nil {
						t.Errorf("remove a pod: %v", err)
					}
				}
			})
		}
		all.Wait()
		node.Eventually(t, "the slices to be gone", func() bool { return len(slices()) == 0 })
	})
}

// TestSystemdRecovery kills the daemon with pods running: the next one has them,
// can still change and end them, and finds nothing out of order.
func TestSystemdRecovery(t *testing.T) {
	underSystemd(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h, func(p *runtimeapi.PodSandboxConfig) {
			p.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 64 << 20}
		})
		c := s.Start(node.Script("sleep 1000"))
		n.Kill(syscall.SIGKILL)
		n.Start()
		if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("after the daemon was killed: %+v", st)
		}
		inOrder := func() {
			t.Helper()
			if out, err := n.CLI("fsck"); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		}
		inOrder()
		limit := "memory.limit_in_bytes"
		if isUnified() {
			limit = "memory.max"
		}
		found, _ := filepath.Glob(cgroupRoot() + "/fairlead.slice/*/*" + s.ID + ".slice/" + limit)
		if len(found) != 1 {
			t.Fatalf("the pod has the limits %v", found)
		}
		if got, err := os.ReadFile(found[0]); string(got) != "67108864\n" {
			t.Errorf("the pod's limit is %q (%v)", got, err)
		}
		if _, err := n.Runtime.UpdateContainerResources(n.Ctx(), &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: c.ID, Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 32 << 20},
		}); err != nil {
			t.Fatal(err)
		}
		if got := c.CgroupFile("memory", "memory.limit_in_bytes", "memory.max"); got != "33554432" {
			t.Errorf("the container's limit after the update is %s", got)
		}
		n.Kill(syscall.SIGKILL)
		n.Start()
		c.Stop(0)
		wantEnd(t, "the container", c.Wait(), "Error")
		inOrder()
		s.Remove()
		inOrder()
		if left := n.OfPods(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}
