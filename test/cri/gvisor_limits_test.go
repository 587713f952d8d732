package cri

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// sandboxLimit is that of the cgroup that the sandbox of a pod is in.
func sandboxLimit(t *testing.T, pod string) int64 {
	t.Helper()
	pid := strconv.Itoa(sentryOf(t, pod))
	text, err := os.ReadFile(filepath.Join("/proc", pid, "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		file := ""
		switch {
		case fields[1] == "memory":
			file = filepath.Join("/sys/fs/cgroup/memory", fields[2], "memory.limit_in_bytes")
		case fields[0] == "0":
			file = filepath.Join("/sys/fs/cgroup", fields[2], "memory.max")
		}
		if b, err := os.ReadFile(file); err == nil {
			n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
			if err != nil || n > 1<<60 {
				return -1 // no limit
			}
			return n
		}
	}
	t.Fatalf("the sandbox is in no memory cgroup: %s", text)
	return 0
}

// A sandbox has the limits of its containers together, and what the class says
// that it costs itself.
func TestGVisorLimitsContainersTogether(t *testing.T) {
	n := gvisor(t)
	const overhead = 100 << 20
	s := n.RunPod("runsc", func(p *runtimeapi.PodSandboxConfig) {
		p.Linux.Overhead = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: overhead}
	})
	script := func(limit int64) *runtimeapi.ContainerConfig {
		c := node.Script(forever)
		limited(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: limit})(c)
		return c
	}
	want := func(limit int64) {
		t.Helper()
		if got := sandboxLimit(t, s.ID); got != limit {
			t.Errorf("the limit is %d, want %d", got, limit)
		}
	}
	first := s.Start(script(memoryOf))
	want(memoryOf + overhead)
	ready(t, s.Start(script(2*memoryOf)))
	want(3*memoryOf + overhead)
	update := func(r *runtimeapi.LinuxContainerResources) error {
		_, err := n.Runtime.UpdateContainerResources(n.Ctx(), &runtimeapi.UpdateContainerResourcesRequest{ContainerId: first.ID, Linux: r})
		return err
	}
	if err := update(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 2 * memoryOf}); err != nil {
		t.Error(err)
	}
	want(4*memoryOf + overhead)
	if err := update(&runtimeapi.LinuxContainerResources{CpusetCpus: "0"}); status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "cpuset_cpus") {
		t.Errorf("processors of one container: %v", err)
	}
	ready(t, s.Start(node.Script(forever)))
	want(-1) // one of them has none
	s.Remove()
}

// When a sandbox is killed for want of memory, that is the reason of its
// containers, and of no others.
func TestGVisorRunsOutOfMemory(t *testing.T) {
	n := gvisor(t)
	s := n.RunPod("runsc")
	const limit = 200 << 20
	cfg := node.Script("echo ready; dd if=/dev/zero of=/dev/null bs=500000000 count=1; echo no")
	limited(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: limit})(cfg)
	idle := node.Script(forever)
	limited(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 20})(idle)
	other := s.Start(idle)
	ended := s.Start(func() *runtimeapi.ContainerConfig {
		c := node.Script("exit 0")
		limited(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 20})(c)
		return c
	}())
	ended.Wait()
	c := s.Start(cfg)
	for _, c := range []*node.Container{c, other} {
		if st := c.Wait(); st.ExitCode != 137 || st.Reason != "OOMKilled" {
			t.Errorf("%+v", st)
		}
	}
	if st := ended.Status(); st.Reason != "Completed" {
		t.Errorf("one that had ended before: %+v", st)
	}
	node.Eventually(t, "the pod not ready", func() bool {
		got, err := n.Runtime.PodSandboxStatus(n.Ctx(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.ID})
		return err == nil && got.Status.State == runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	})
	s.Remove()
}
