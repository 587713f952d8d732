package pod

// Resources are cgroup limits. Zero means "not set" for every field but
// OOMScoreAdj, whose zero is a value.
type Resources struct {
	CPUPeriod       int64             `json:"cpuPeriod,omitempty"`       // us
	CPUQuota        int64             `json:"cpuQuota,omitempty"`        // us per period; -1 is unlimited
	CPUShares       int64             `json:"cpuShares,omitempty"`       // 2 to 262144, the cgroup v1 scale
	CpusetCPUs      string            `json:"cpusetCPUs,omitempty"`      // "0-3,7"
	CpusetMems      string            `json:"cpusetMems,omitempty"`      // "0,1"
	MemoryLimit     int64             `json:"memoryLimit,omitempty"`     // bytes; -1 is unlimited
	MemorySwapLimit int64             `json:"memorySwapLimit,omitempty"` // bytes, memory and swap together
	OOMScoreAdj     int64             `json:"oomScoreAdj,omitempty"`     // -1000 to 1000
	HugepageLimits  []HugepageLimit   `json:"hugepageLimits,omitempty"`
	Unified         map[string]string `json:"unified,omitempty"` // cgroup v2 file name to content; pids.max holds on v1 too
}

// HugepageLimit limits huge pages of one size.
type HugepageLimit struct {
	PageSize string `json:"pageSize"` // "2MB"
	Limit    uint64 `json:"limit"`    // bytes
}
