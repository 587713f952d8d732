package cri

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// cgroupFile finds a file of the container's cgroup on the host.
func (c *container) cgroupFile(controller, v1, v2 string) string {
	t := c.s.n.t
	t.Helper()
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		controller, v1 = "", v2
	}
	var found string
	_ = filepath.WalkDir(filepath.Join("/sys/fs/cgroup", controller), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(filepath.Base(path), c.id) {
			found = path
			return filepath.SkipAll
		}
		return nil
	})
	if found == "" {
		t.Fatalf("container %s has no cgroup for %q", c.id, controller)
	}
	b, err := os.ReadFile(filepath.Join(found, v1))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func limited(r *runtimeapi.LinuxContainerResources) func(*containerConfig) {
	return func(c *containerConfig) { c.Linux.Resources = r }
}

func TestResources(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		s := n.runPod(h)
		cfg := script("sleep 1000")
		limited(&runtimeapi.LinuxContainerResources{
			CpuPeriod: 50000, CpuQuota: 25000, CpuShares: 512, MemoryLimitInBytes: 64 << 20,
			CpusetCpus: "0", CpusetMems: "0", Unified: map[string]string{"pids.max": "77"},
		})(cfg)
		c := s.start(cfg)
		v2 := isUnified()
		for _, tt := range []struct{ controller, v1, v2, want1, want2 string }{
			{"cpu", "cpu.cfs_quota_us", "cpu.max", "25000", "25000 50000"},
			{"cpu", "cpu.cfs_period_us", "cpu.max", "50000", "25000 50000"},
			{"memory", "memory.limit_in_bytes", "memory.max", "67108864", "67108864"},
			{"cpuset", "cpuset.cpus", "cpuset.cpus", "0", "0"},
			{"pids", "pids.max", "pids.max", "77", "77"},
		} {
			want := tt.want1
			if v2 {
				want = tt.want2
			}
			if got := c.cgroupFile(tt.controller, tt.v1, tt.v2); got != want {
				t.Errorf("%s: %s, want %s", tt.v1, got, want)
			}
		}
		if !v2 {
			if got := c.cgroupFile("cpu", "cpu.shares", ""); got != "512" {
				t.Errorf("cpu.shares: %s", got)
			}
		}
		_, err := n.runtime.UpdateContainerResources(n.ctx(), &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: c.id, Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 96 << 20, CpuQuota: 30000, CpuPeriod: 50000},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.cgroupFile("memory", "memory.limit_in_bytes", "memory.max"); got != "100663296" {
			t.Errorf("after the update: %s", got)
		}
		if got := c.status().GetResources().GetLinux(); got.GetMemoryLimitInBytes() != 96<<20 || got.GetCpuShares() != 512 {
			t.Errorf("status after the update: %+v", got)
		}
		s.remove()
	})
}

func isUnified() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

func TestUpdateBeforeStart(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		s := n.runPod(h)
		c := s.create(script("sleep 1000"))
		_, err := n.runtime.UpdateContainerResources(n.ctx(), &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: c.id, Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 80 << 20},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.tryStart(); err != nil {
			t.Fatal(err)
		}
		if got := c.cgroupFile("memory", "memory.limit_in_bytes", "memory.max"); got != "83886080" {
			t.Errorf("%s", got)
		}
		s.remove()
	})
}

func TestOutOfMemory(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		s := n.runPod(h)
		cfg := script("x=a; while :; do x=$x$x; done")
		limited(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 16 << 20, MemorySwapLimitInBytes: 16 << 20})(cfg)
		st := s.start(cfg).wait()
		if st.Reason != "OOMKilled" || st.ExitCode != 137 {
			t.Errorf("%+v", st)
		}
		s.remove()
	})
}

func TestCgroupParent(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		parent := "/fairlead-test-" + h + "/pod"
		s := n.runPod(h, func(p *runtimeapi.PodSandboxConfig) { p.Linux.CgroupParent = parent })
		c := s.start(script("sleep 1000"))
		controller := "memory"
		if isUnified() {
			controller = ""
		}
		path := filepath.Join("/sys/fs/cgroup", controller, parent, c.id)
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
		s.remove()
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
	underEach(t, func(t *testing.T, n *node, h string) {
		must(t, n.inside(h, "cat /proc/self/oom_score_adj", limited(&runtimeapi.LinuxContainerResources{OomScoreAdj: 555})), "555")
		// Lowering needs CAP_SYS_RESOURCE, which may be missing; the pod runs anyway.
		got := strings.TrimSpace(n.inside(h, "cat /proc/self/oom_score_adj", limited(&runtimeapi.LinuxContainerResources{OomScoreAdj: -998})))
		own, err := os.ReadFile("/proc/self/oom_score_adj")
		if err != nil {
			t.Fatal(err)
		}
		if got != "-998" && got != strings.TrimSpace(string(own)) {
			t.Errorf("got %s", got)
		}
	})
}

func TestUnknownUnifiedKeyOnCgroupV1(t *testing.T) {
	if isUnified() {
		t.Skip("this test is for cgroup v1")
	}
	underEach(t, func(t *testing.T, n *node, h string) {
		s := n.runPod(h)
		cfg := script("true")
		limited(&runtimeapi.LinuxContainerResources{Unified: map[string]string{"memory.high": "1"}})(cfg)
		if _, err := s.tryCreate(cfg); err == nil || !strings.Contains(err.Error(), "memory.high") {
			t.Errorf("what cannot be honoured must be refused: %v", err)
		}
	})
}

func TestRlimits(t *testing.T) {
	n := startNode(t, "[containers.rlimits]\nnofile = { soft = 123, hard = 456 }\n")
	n.pull(busybox)
	for _, h := range handlers {
		must(t, n.inside(h, "ulimit -n; ulimit -Hn", nil), "123\n456")
	}
}
