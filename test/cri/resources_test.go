package cri

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/hostprep"
	"fairlead.run/test/node"
)

func limited(r *runtimeapi.LinuxContainerResources) func(*containerConfig) {
	return func(c *containerConfig) { c.Linux.Resources = r }
}

func TestResources(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		cfg := node.Script("sleep 1000")
		limited(&runtimeapi.LinuxContainerResources{
			CpuPeriod: 50000, CpuQuota: 25000, CpuShares: 512, MemoryLimitInBytes: 64 << 20, MemorySwapLimitInBytes: 128 << 20,
			CpusetCpus: "0", CpusetMems: "0", Unified: map[string]string{"pids.max": "77"},
		})(cfg)
		c := s.Start(cfg)
		v2 := isUnified()
		for _, tt := range []struct{ controller, v1, v2, want1, want2 string }{
			{"cpu", "cpu.cfs_quota_us", "cpu.max", "25000", "25000 50000"},
			{"cpu", "cpu.cfs_period_us", "cpu.max", "50000", "25000 50000"},
			{"memory", "memory.limit_in_bytes", "memory.max", "67108864", "67108864"},
			{"memory", "memory.memsw.limit_in_bytes", "memory.swap.max", "134217728", "67108864"}, // v2 counts swap alone
			{"cpuset", "cpuset.cpus", "cpuset.cpus", "0", "0"},
			{"cpuset", "cpuset.mems", "cpuset.mems", "0", "0"},
			{"pids", "pids.max", "pids.max", "77", "77"},
		} {
			want := tt.want1
			if v2 {
				want = tt.want2
			} else if _, err := os.Stat("/sys/fs/cgroup/" + tt.controller + "/" + tt.v1); err != nil && strings.HasPrefix(tt.v1, "memory.memsw") {
				continue // this kernel does not account for swap
			}
			if got := c.CgroupFile(tt.controller, tt.v1, tt.v2); got != want {
				t.Errorf("%s: %s, want %s", tt.v1, got, want)
			}
		}
		// Of v2 the runtime converts, each release by one of two formulas.
		if got := c.CgroupFile("cpu", "cpu.shares", "cpu.weight"); !v2 && got != "512" || v2 && got != "20" && got != "59" {
			t.Errorf("shares of the processor: %s", got)
		}
		_, err := n.Runtime.UpdateContainerResources(n.Ctx(), &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: c.ID, Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 96 << 20, CpuQuota: 30000, CpuPeriod: 50000},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.CgroupFile("memory", "memory.limit_in_bytes", "memory.max"); got != "100663296" {
			t.Errorf("after the update: %s", got)
		}
		want := "30000"
		if v2 {
			want = "30000 50000"
		}
		if got := c.CgroupFile("cpu", "cpu.cfs_quota_us", "cpu.max"); got != want {
			t.Errorf("cpu quota after the update: %s, want %s", got, want)
		}
		if got := c.Status().GetResources().GetLinux(); got.GetMemoryLimitInBytes() != 96<<20 || got.GetCpuShares() != 512 {
			t.Errorf("status after the update: %+v", got)
		}
		s.Remove()
	})
}

// A quota of -1 is what the kubelet asks for where a container has processors of
// its own, and what an update says that takes a limit away.
func TestNoLimitOfProcessorTime(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		cfg := node.Script("sleep 1000")
		limited(&runtimeapi.LinuxContainerResources{CpuPeriod: 50000, CpuQuota: -1})(cfg)
		c := s.Start(cfg)
		want := func(v1, v2 string) {
			t.Helper()
			if isUnified() {
				v1 = v2
			}
			if got := c.CgroupFile("cpu", "cpu.cfs_quota_us", "cpu.max"); got != v1 {
				t.Errorf("%s, want %s", got, v1)
			}
		}
		want("-1", "max 50000")
		for _, step := range []struct {
			quota  int64
			v1, v2 string
		}{{25000, "25000", "25000 50000"}, {-1, "-1", "max 50000"}} {
			if _, err := n.Runtime.UpdateContainerResources(n.Ctx(), &runtimeapi.UpdateContainerResourcesRequest{
				ContainerId: c.ID, Linux: &runtimeapi.LinuxContainerResources{CpuQuota: step.quota},
			}); err != nil {
				t.Fatal(err)
			}
			want(step.v1, step.v2)
		}
		s.Remove()
	})
}

func isUnified() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

func TestUpdateBeforeStart(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		c := s.Create(node.Script("sleep 1000"))
		_, err := n.Runtime.UpdateContainerResources(n.Ctx(), &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: c.ID, Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 80 << 20},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.TryStart(); err != nil {
			t.Fatal(err)
		}
		if got := c.CgroupFile("memory", "memory.limit_in_bytes", "memory.max"); got != "83886080" {
			t.Errorf("%s", got)
		}
		s.Remove()
	})
}

func TestOutOfMemory(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		cfg := node.Script("x=a; while :; do x=$x$x; done")
		limited(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 16 << 20, MemorySwapLimitInBytes: 16 << 20})(cfg)
		st := s.Start(cfg).Wait()
		if st.Reason != "OOMKilled" || st.ExitCode != 137 {
			t.Errorf("%+v", st)
		}
		s.Remove()
	})
}

func TestCgroupParent(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		parent, scope := "/fairlead-test-"+h+"/pod", "%s"
		if hostprep.BySystemd() {
			parent, scope = "/fairleadtest.slice/fairleadtest-"+h+".slice", "fairlead-%s.scope"
		}
		s := n.RunPod(h, func(p *runtimeapi.PodSandboxConfig) { p.Linux.CgroupParent = parent })
		c := s.Start(node.Script("sleep 1000"))
		controller := "memory"
		if isUnified() {
			controller = ""
		}
		path := filepath.Join("/sys/fs/cgroup", controller, parent, fmt.Sprintf(scope, c.ID))
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
		s.Remove()
		if hostprep.BySystemd() {
			stopSlice(t, "fairleadtest.slice")
			return
		}
		removeCgroups(t, "fairlead-test-"+h)
	})
}

// removeCgroups removes a cgroup parent that a test named, as the kubelet
// removes those that it made.
func removeCgroups(t *testing.T, name string) {
	t.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup/*/" + name + "/*", "/sys/fs/cgroup/*/" + name, "/sys/fs/cgroup/" + name + "/*", "/sys/fs/cgroup/" + name} {
		found, _ := filepath.Glob(pattern)
		for _, path := range found {
			if st, err := os.Stat(path); err == nil && st.IsDir() {
				if err := os.Remove(path); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func TestOOMScoreAdjIsClampedNotFatal(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		must(t, n.Inside(h, "cat /proc/self/oom_score_adj", limited(&runtimeapi.LinuxContainerResources{OomScoreAdj: 555})), "555")
		// Lowering needs CAP_SYS_RESOURCE, which may be missing; the pod runs anyway.
		got := strings.TrimSpace(n.Inside(h, "cat /proc/self/oom_score_adj", limited(&runtimeapi.LinuxContainerResources{OomScoreAdj: -998})))
		own, err := os.ReadFile("/proc/self/oom_score_adj")
		if err != nil {
			t.Fatal(err)
		}
		if got != "-998" && got != strings.TrimSpace(string(own)) {
			t.Errorf("got %s", got)
		}
		if warned := strings.Contains(n.DaemonLog(), "oom_score_adj -998: without CAP_SYS_RESOURCE"); warned != (got != "-998") {
			t.Errorf("the score is %s, and a warning in the log: %t", got, warned)
		}
	})
}

func TestUnknownUnifiedKeyOnCgroupV1(t *testing.T) {
	if isUnified() {
		t.Skip("this test is for cgroup v1")
	}
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		cfg := node.Script("true")
		limited(&runtimeapi.LinuxContainerResources{Unified: map[string]string{"memory.high": "1"}})(cfg)
		if _, err := s.TryCreate(cfg); err == nil || !strings.Contains(err.Error(), "memory.high") {
			t.Errorf("what cannot be honoured must be refused: %v", err)
		}
	})
}

func TestRlimits(t *testing.T) {
	n := node.Start(t, "[containers.rlimits]\nnofile = { soft = 123, hard = 456 }\n")
	n.Pull(node.Busybox)
	for _, h := range node.Handlers {
		must(t, n.Inside(h, "ulimit -n; ulimit -Hn", nil), "123\n456")
	}
}
