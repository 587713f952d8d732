package spec

import (
	"regexp"

	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/pod"
	"fairlead.run/internal/spec/host"
)

func cpu(r *pod.Resources, out *specs.LinuxResources) error {
	if field, why := r.CPUFault(); field != "" {
		return invalid(resourcesField+field, "%s", why)
	}
	if err := cpusets(r); err != nil {
		return err
	}
	c := &specs.LinuxCPU{Cpus: r.CpusetCPUs, Mems: r.CpusetMems}
	if r.CPUPeriod != 0 {
		c.Period = ptr(uint64(r.CPUPeriod))
	}
	// No limit is what a new cgroup has. crun 1.8 cannot write it on cgroup v1.
	if r.CPUQuota > 0 {
		c.Quota = ptr(r.CPUQuota)
	}
	if r.CPUShares != 0 {
		c.Shares = ptr(uint64(r.CPUShares))
	}
	if *c != (specs.LinuxCPU{}) {
		out.CPU = c
	}
	return nil
}

var cpuList = regexp.MustCompile(`^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$`)

func cpusets(r *pod.Resources) error {
	for name, list := range map[string]string{"cpuset_cpus": r.CpusetCPUs, "cpuset_mems": r.CpusetMems} {
		if list != "" && !cpuList.MatchString(list) {
			return invalid(resourcesField+name, "%q is not a list like 0-3,7", list)
		}
	}
	if r.CpusetCPUs == "" {
		return nil
	}
	online, err := host.OnlineCPUs()
	if err != nil {
		return err
	}
	within, err := host.Covers(online, r.CpusetCPUs)
	if err != nil || !within {
		return invalid(resourcesField+"cpuset_cpus", "is %q; this node has the processors %s", r.CpusetCPUs, online)
	}
	return nil
}
