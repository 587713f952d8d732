package pod

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLimitsTogether(t *testing.T) {
	const none = -1
	for name, tt := range map[string]struct {
		containers []*Resources
		overhead   *Resources
		want       Resources
	}{
		"one": {
			containers: []*Resources{{CPUQuota: 50_000, CPUPeriod: 100_000, CPUShares: 10, MemoryLimit: 100}},
			want:       Resources{CPUQuota: 50_000, CPUShares: 10, MemoryLimit: 100, MemorySwapLimit: 100},
		},
		"two with other periods, and overhead": {
			containers: []*Resources{
				{CPUQuota: 50_000, CPUPeriod: 50_000, CPUShares: 10, MemoryLimit: 100},
				{CPUQuota: 50_000, CPUShares: 20, MemoryLimit: 200, MemorySwapLimit: 250},
			},
			overhead: &Resources{CPUQuota: 10_000, CPUShares: 2, MemoryLimit: 7},
			want:     Resources{CPUQuota: 160_000, CPUShares: 32, MemoryLimit: 307, MemorySwapLimit: 357},
		},
		"one has no limit": {
			containers: []*Resources{{CPUQuota: 50_000, MemoryLimit: 100}, nil, {CPUQuota: -1, MemoryLimit: -1}},
			overhead:   &Resources{CPUQuota: 1000, MemoryLimit: 7},
			want:       Resources{CPUQuota: none, CPUShares: 3072, MemoryLimit: none, MemorySwapLimit: none},
		},
		"more shares than there can be": {
			containers: []*Resources{{CPUShares: 262144}, {CPUShares: 262144}},
			want:       Resources{CPUQuota: none, CPUShares: 262144, MemoryLimit: none, MemorySwapLimit: none},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*Container
			for _, r := range tt.containers {
				all = append(all, &Container{Config: ContainerConfig{Resources: r}})
			}
			tt.want.CPUPeriod = 100_000
			if d := cmp.Diff(&tt.want, LimitsTogether(all, tt.overhead)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestNotTogether(t *testing.T) {
	for want, b := range map[string]*Resources{
		"":                {MemoryLimit: 5, CPUShares: 7, HugepageLimits: []HugepageLimit{{PageSize: "2MB"}}},
		"cpuset_cpus":     {CpusetCPUs: "0"},
		"cpuset_mems":     {CpusetMems: "0"},
		"hugepage_limits": {HugepageLimits: []HugepageLimit{{PageSize: "2MB", Limit: 1}}},
		"unified":         {Unified: map[string]string{"memory.high": "1"}},
	} {
		if got := NotTogether(nil, b); got != want {
			t.Errorf("%+v: %q", b, got)
		}
		if got := NotTogether(b, b); got != "" {
			t.Errorf("%+v: %q", b, got)
		}
	}
}

func TestUnfitForSandbox(t *testing.T) {
	for want, c := range map[string]Config{
		"": {Security: Security{Namespaces: Namespaces{Network: NamespaceNode, PID: NamespacePod}}},
		"linux.security_context.namespace_options.pid": {Security: Security{Namespaces: Namespaces{PID: NamespaceNode}}},
		"linux.security_context.namespace_options.ipc": {Security: Security{Namespaces: Namespaces{IPC: NamespaceNode}}},
		"linux.sysctls": {Sysctls: map[string]string{"kernel.a": "1"}},
	} {
		if field, why := c.UnfitForSandbox(); field != want || (why == "") != (want == "") {
			t.Errorf("%q %q, want %q", field, why, want)
		}
	}
}
