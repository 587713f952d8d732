package spec

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

func TestResources(t *testing.T) {
	for name, tt := range map[string]struct {
		r        *pod.Resources
		noSwap   bool
		want     string
		warnings int
	}{
		"none":                {nil, false, `{}`, 0},
		"nothing set":         {&pod.Resources{}, false, `{}`, 0},
		"cpu":                 {&pod.Resources{CPUPeriod: 1000, CPUQuota: 1000, CPUShares: 2}, false, `{"cpu":{"shares":2,"quota":1000,"period":1000}}`, 0},
		"cpu unlimited":       {&pod.Resources{CPUQuota: -1, CPUShares: 2}, false, `{"cpu":{"shares":2}}`, 0},
		"cpuset":              {&pod.Resources{CpusetCPUs: "0", CpusetMems: "0"}, false, `{"cpu":{"cpus":"0","mems":"0"}}`, 0},
		"memory without swap": {&pod.Resources{MemoryLimit: 100}, false, `{"memory":{"limit":100,"swap":100}}`, 0},
		"memory and swap":     {&pod.Resources{MemoryLimit: 100, MemorySwapLimit: 150}, false, `{"memory":{"limit":100,"swap":150}}`, 0},
		"swap unlimited":      {&pod.Resources{MemoryLimit: 100, MemorySwapLimit: -1}, false, `{"memory":{"limit":100,"swap":-1}}`, 0},
		"memory unlimited":    {&pod.Resources{MemoryLimit: -1}, false, `{"memory":{"limit":-1,"swap":-1}}`, 0},
		"no swap accounting":  {&pod.Resources{MemoryLimit: 100}, true, `{"memory":{"limit":100}}`, 0},
		"swap all the same":   {&pod.Resources{MemoryLimit: 100, MemorySwapLimit: 150}, true, `{"memory":{"limit":100}}`, 1},
		"pids":                {&pod.Resources{Unified: map[string]string{"pids.max": "50"}}, false, `{"pids":{"limit":50}}`, 0},
		"pids, max":           {&pod.Resources{Unified: map[string]string{"pids.max": "max"}}, false, `{"pids":{"limit":-1}}`, 0},
		"unified":             {&pod.Resources{Unified: map[string]string{"memory.high": "7", "io.weight": "default 100", "hugetlb.2MB.max": "0"}}, false, `{"unified":{"hugetlb.2MB.max":"0","io.weight":"default 100","memory.high":"7"}}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			tc := plain(t)
			tc.cfg.Host.Swap = !tt.noSwap
			tc.c.Resources = tt.r
			w := tc.spec(t)
			if d := w.spec.Linux.Resources.Devices; len(d) != 1 {
				t.Errorf("device rules %v", d)
			}
			w.spec.Linux.Resources.Devices = nil
			got, err := json.Marshal(w.spec.Linux.Resources)
			must(t, err)
			if string(got) != tt.want || len(w.warnings) != tt.warnings {
				t.Errorf("got %s, warnings %v", got, w.warnings)
			}
		})
	}
}

func TestResourcesRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		r     pod.Resources
		words string
	}{
		"shares":            {pod.Resources{CPUShares: -1}, "linux.resources.cpu_shares"},
		"period":            {pod.Resources{CPUPeriod: -1}, "cpu_period"},
		"quota":             {pod.Resources{CPUQuota: -2}, "cpu_quota"},
		"shares too low":    {pod.Resources{CPUShares: 1}, "from 2 to 262144"},
		"shares too high":   {pod.Resources{CPUShares: 262145}, "from 2 to 262144"},
		"period too low":    {pod.Resources{CPUPeriod: 999}, "from 1000 to 1000000"},
		"period too high":   {pod.Resources{CPUPeriod: 1000001}, "from 1000 to 1000000"},
		"quota too low":     {pod.Resources{CPUQuota: 999}, "from 1000 to"},
		"quota too high":    {pod.Resources{CPUQuota: 1 << 44}, "from 1000 to"},
		"no such processor": {pod.Resources{CpusetCPUs: "0,8000-8001"}, "this node has the processors 0"},
		"a huge range":      {pod.Resources{CpusetCPUs: "0-2000000000"}, "this node has the processors 0"},
		"backwards":         {pod.Resources{CpusetCPUs: "3-1"}, "cpuset_cpus"},
		"no such page":      {pod.Resources{HugepageLimits: []pod.HugepageLimit{{PageSize: "3MB", Limit: 1}}}, "has no pages of 3MB"},
		"cpus":              {pod.Resources{CpusetCPUs: "0-"}, "cpuset_cpus"},
		"mems":              {pod.Resources{CpusetMems: "0\n1"}, "cpuset_mems"},
		"memory":            {pod.Resources{MemoryLimit: -2}, "memory_limit_in_bytes"},
		"swap":              {pod.Resources{MemoryLimit: 1, MemorySwapLimit: -2}, "memory_swap_limit_in_bytes"},
		"swap alone":        {pod.Resources{MemorySwapLimit: 5}, "needs memory_limit_in_bytes"},
		"swap below memory": {pod.Resources{MemoryLimit: 9, MemorySwapLimit: 5}, "below"},
		"page size":         {pod.Resources{HugepageLimits: []pod.HugepageLimit{{PageSize: "2MB"}, {PageSize: "../x"}}}, "hugepage_limits[1].page_size"},
		"pids":              {pod.Resources{Unified: map[string]string{"pids.max": "many"}}, "pids.max"},
		"pids zero":         {pod.Resources{Unified: map[string]string{"pids.max": "0"}}, "pids.max"},
		"a path":            {pod.Resources{Unified: map[string]string{"../memory.high": "1"}}, "unified"},
		"kills":             {pod.Resources{Unified: map[string]string{"cgroup.kill": "1"}}, "cgroup.kill"},
		"no such memory":    {pod.Resources{CpusetMems: "0,900"}, "this node has the memory nodes 0"},
		"the processes":     {pod.Resources{Unified: map[string]string{"cgroup.procs": "1"}}, "cgroup.procs"},
		"oom score":         {pod.Resources{OOMScoreAdj: -1001}, "oom_score_adj"},
	} {
		t.Run(name, func(t *testing.T) {
			tc := plain(t)
			tc.c.Resources = &tt.r
			tc.refused(t, errdefs.ErrInvalidArgument, tt.words)
		})
	}
	tc := plain(t)
	tc.cfg.Host.Unified = false
	tc.c.Resources = &pod.Resources{Unified: map[string]string{"memory.high": "1"}}
	tc.refused(t, errdefs.ErrUnimplemented, "memory.high", "cgroup v2")
	tc.c.Resources = &pod.Resources{Unified: map[string]string{"pids.max": "5"}}
	if p := tc.spec(t).spec.Linux.Resources.Pids; p == nil || *p.Limit != 5 {
		t.Errorf("pids.max on cgroup v1: %v", p)
	}
}

func TestOOMScore(t *testing.T) {
	tc := plain(t)
	if adj := tc.spec(t).spec.Process.OOMScoreAdj; adj == nil || *adj != 0 {
		t.Errorf("nothing said: %v", adj)
	}
	tc.c.Resources = &pod.Resources{OOMScoreAdj: -997}
	if adj := tc.spec(t).spec.Process.OOMScoreAdj; *adj != -997 {
		t.Errorf("-997 became %d", *adj)
	}
	tc.cfg.Host.SysResource, tc.cfg.Host.OOMScoreAdj = false, -500
	w := tc.spec(t)
	if *w.spec.Process.OOMScoreAdj != -500 || len(w.warnings) != 1 || !strings.Contains(w.warnings[0], "-997") {
		t.Errorf("clamped to %d, warnings %v", *w.spec.Process.OOMScoreAdj, w.warnings)
	}
	tc.c.Resources.OOMScoreAdj = 1000
	if w := tc.spec(t); *w.spec.Process.OOMScoreAdj != 1000 || len(w.warnings) > 0 {
		t.Errorf("raised to %d, %v", *w.spec.Process.OOMScoreAdj, w.warnings)
	}
}

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[0] == pausePath { // see TestSandboxRuns
		pause()
	}
	os.Exit(m.Run())
}
