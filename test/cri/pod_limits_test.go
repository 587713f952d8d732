package cri

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/hostprep"
	"fairlead.run/test/node"
)

// podFile is a file of a pod's cgroup, and what it is to have by version.
type podFile struct{ controller, v1, v2, want1, want2 string }

func wantPodFiles(t *testing.T, s *node.Sandbox, when string, files []podFile) {
	t.Helper()
	for _, f := range files {
		want := f.want1
		if isUnified() {
			want = f.want2
		} else if _, err := os.Stat("/sys/fs/cgroup/" + f.controller + "/" + f.v1); err != nil && strings.HasPrefix(f.v1, "memory.memsw") {
			continue // this kernel does not account for swap
		}
		if got := s.CgroupFile(f.controller, f.v1, f.v2); got != want {
			t.Errorf("%s: %s %s is %s, want %s", when, f.v1, f.v2, got, want)
		}
	}
}

func withLimits(r, overhead *runtimeapi.LinuxContainerResources) func(*runtimeapi.PodSandboxConfig) {
	return func(p *runtimeapi.PodSandboxConfig) { p.Linux.Resources, p.Linux.Overhead = r, overhead }
}

// Every limit of a pod that names no parent is one of its cgroup, from the
// beginning, after each update, and until it is asked for no more.
func TestPodLimits(t *testing.T) {
	each := node.UnderAll
	if hostprep.BySystemd() {
		each = node.UnderEach // runsc makes no scopes of systemd's on cgroup v1
	}
	each(t, func(t *testing.T, n *node.Node, h string) {
		all := &runtimeapi.LinuxContainerResources{
			CpuPeriod: 50000, CpuQuota: 25000, CpuShares: 512, MemoryLimitInBytes: 256 << 20, MemorySwapLimitInBytes: 512 << 20,
			CpusetCpus: "0", CpusetMems: "0", Unified: map[string]string{"pids.max": "555"},
		}
		huge := limitsHugepages(all, 4<<20)
		if isUnified() {
			all.Unified["memory.high"] = "134217728"
		}
		s := n.RunPod(h, withLimits(all, &runtimeapi.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: 10000, CpuShares: 100, MemoryLimitInBytes: 64 << 20}))
		c := s.Start(node.Script("sleep 1000"))
		files := []podFile{
			{"cpu", "cpu.cfs_quota_us", "cpu.max", "30000", "30000 50000"},
			{"cpu", "cpu.shares", "cpu.weight", "612", s.CgroupFile("cpu", "cpu.shares", "cpu.weight")}, // see TestLimits of the driver
			{"memory", "memory.limit_in_bytes", "memory.max", "335544320", "335544320"},
			{"memory", "memory.memsw.limit_in_bytes", "memory.swap.max", "603979776", "268435456"}, // v2 counts swap alone
			{"cpuset", "cpuset.cpus", "cpuset.cpus", "0", "0"},
			{"cpuset", "cpuset.mems", "cpuset.mems", "0", "0"},
			{"pids", "pids.max", "pids.max", "555", "555"},
		}
		if huge {
			files = append(files, podFile{"hugetlb", "hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.max", "4194304", "4194304"})
		}
		if isUnified() {
			files = append(files, podFile{v2: "memory.high", want2: "134217728"})
		}
		wantPodFiles(t, s, "at first", files)
		if got := c.CgroupFile("cpuset", "cpuset.cpus", "cpuset.cpus.effective"); got != "0" {
			t.Errorf("a container of a pod with processor 0 has %s", got)
		}
		update := func(r *runtimeapi.LinuxContainerResources) error {
			_, err := n.Runtime.UpdatePodSandboxResources(n.Ctx(), &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: s.ID, Resources: r})
			return err
		}
		other := &runtimeapi.LinuxContainerResources{
			CpuPeriod: 50000, CpuQuota: 35000, MemoryLimitInBytes: 320 << 20, MemorySwapLimitInBytes: 320 << 20,
			CpusetCpus: "0-1", Unified: map[string]string{"pids.max": "666"},
		}
		limitsHugepages(other, 8<<20)
		noPodLimit(t, update(other))
		files = []podFile{
			{"cpu", "cpu.cfs_quota_us", "cpu.max", "40000", "40000 50000"},
			{"cpu", "cpu.shares", "cpu.weight", "1024", s.CgroupFile("cpu", "cpu.shares", "cpu.weight")},
			{"memory", "memory.limit_in_bytes", "memory.max", "402653184", "402653184"},
			{"memory", "memory.memsw.limit_in_bytes", "memory.swap.max", "402653184", "0"},
			{"cpuset", "cpuset.cpus", "cpuset.cpus", "0-1", "0-1"},
			{"pids", "pids.max", "pids.max", "666", "666"},
		}
		if huge {
			files = append(files, podFile{"hugetlb", "hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.max", "8388608", "8388608"})
		}
		if isUnified() {
			files = append(files, podFile{v2: "memory.high", want2: "max"})
		}
		wantPodFiles(t, s, "after an update", files)
		refusesPodLimits(t, update)
		wantPodFiles(t, s, "after updates that are refused", files)
		// Containers without a set of their own follow the pod's.
		noPodLimit(t, update(&runtimeapi.LinuxContainerResources{CpusetCpus: "1"}))
		if got := c.CgroupFile("cpuset", "cpuset.cpus", "cpuset.cpus.effective"); got != "1" {
			t.Errorf("the container has the processors %s, and its pod 1", got)
		}
		noPodLimit(t, update(&runtimeapi.LinuxContainerResources{}))
		files = []podFile{
			{"cpu", "cpu.cfs_quota_us", "cpu.max", "-1", "max 100000"},
			{"memory", "memory.limit_in_bytes", "memory.max", "9223372036854771712", "max"},
			{"memory", "memory.memsw.limit_in_bytes", "memory.swap.max", "9223372036854771712", "max"},
			{"cpuset", "cpuset.cpus", "cpuset.cpus.effective", "0-1", "0-1"},
			{"pids", "pids.max", "pids.max", "max", "max"},
		}
		if huge {
			files = append(files, podFile{"hugetlb", "hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.max", "9223372036852678656", "max"})
		}
		wantPodFiles(t, s, "without limits", files)
		if got := c.CgroupFile("cpuset", "cpuset.cpus", "cpuset.cpus.effective"); got != "0-1" {
			t.Errorf("the container has the processors %s, and its pod all", got)
		}
		s.Remove()
	})
}

// limitsHugepages adds a limit of huge pages of 2 MB where the host has them and
// their controller.
func limitsHugepages(r *runtimeapi.LinuxContainerResources, bytes uint64) bool {
	_, v1 := os.Stat("/sys/fs/cgroup/hugetlb/hugetlb.2MB.usage_in_bytes")
	controllers, _ := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	_, pages := os.Stat("/sys/kernel/mm/hugepages/hugepages-2048kB")
	if pages != nil || v1 != nil && !strings.Contains(string(controllers), "hugetlb") {
		return false
	}
	r.HugepageLimits = []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: bytes}}
	return true
}

func noPodLimit(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// podLimitsRefused are limits that no pod can have, and the field that is named.
func podLimitsRefused() map[string]*runtimeapi.LinuxContainerResources {
	out := map[string]*runtimeapi.LinuxContainerResources{
		"cpuset_cpus":                     {CpusetCpus: "99"},
		"cpuset_mems":                     {CpusetMems: "99"},
		"cpu_quota":                       {CpuQuota: 5},
		"memory_swap_limit_in_bytes":      {MemorySwapLimitInBytes: 1 << 20},
		"hugepage_limits[0].page_size":    {HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "3MB", Limit: 1}}},
		`unified["pids.max"]`:             {Unified: map[string]string{"pids.max": "many"}},
		`unified["nonsense.file"]`:        {Unified: map[string]string{"nonsense.file": "1"}},
		`unified["cgroup.procs"]`:         {Unified: map[string]string{"cgroup.procs": "1"}},
		"oom_score_adj":                   {OomScoreAdj: 5},
		`unified["../fairlead/pids.max"]`: {Unified: map[string]string{"../fairlead/pids.max": "1"}},
	}
	if isUnified() {
		out["memory.high"] = &runtimeapi.LinuxContainerResources{Unified: map[string]string{"memory.high": "much"}}
	}
	return out
}

func refusesPodLimits(t *testing.T, try func(*runtimeapi.LinuxContainerResources) error) {
	t.Helper()
	for field, r := range podLimitsRefused() {
		err := try(r)
		if c := status.Code(err); c != codes.InvalidArgument && c != codes.Unimplemented || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// A pod in a cgroup of the caller's is refused for what it cannot have, too.
func TestPodLimitsRefused(t *testing.T) {
	n := node.Start(t, "")
	for _, parent := range []string{"", parentOfTest()} {
		refusesPodLimits(t, func(r *runtimeapi.LinuxContainerResources) error {
			_, err := n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: n.PodConfig(withLimits(r, nil), func(p *runtimeapi.PodSandboxConfig) {
				p.Linux.CgroupParent = parent
			})})
			return err
		})
	}
	for field, r := range map[string]*runtimeapi.LinuxContainerResources{
		"overhead.cpuset_cpus": {CpusetCpus: "0"}, "overhead.unified": {Unified: map[string]string{"pids.max": "5"}},
	} {
		_, err := n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: n.PodConfig(withLimits(nil, r))})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "linux."+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if left := n.OfPods(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// parentOfTest is a cgroup that is never made. With version 2 there is none: whether
// it has a file only it could tell.
func parentOfTest() string {
	if isUnified() {
		return ""
	}
	return fmt.Sprintf("/fairlead-test-%d", os.Getpid())
}
