package spec

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/pod"
	"fairlead.run/internal/spec/host"
)

// What the kernel's scheduler takes. A runtime that is given anything else says
// so too late, and names a file of a cgroup instead of the field.
const (
	leastShares = 2
	leastPeriod = 1000    // microseconds, as the next two
	mostPeriod  = 1000000 //
	leastQuota  = 1000    //
)

func cpu(r *pod.Resources, out *specs.LinuxResources) error {
	switch {
	case r.CPUShares != 0 && r.CPUShares < leastShares:
		return invalid(resourcesField+"cpu_shares", "is %d; the least is %d, and 0 stands for the default", r.CPUShares, leastShares)
	case r.CPUPeriod != 0 && (r.CPUPeriod < leastPeriod || r.CPUPeriod > mostPeriod):
		return invalid(resourcesField+"cpu_period", "is %d microseconds; it goes from %d to %d", r.CPUPeriod, leastPeriod, mostPeriod)
	case r.CPUQuota != 0 && r.CPUQuota != -1 && r.CPUQuota < leastQuota:
		return invalid(resourcesField+"cpu_quota", "is %d microseconds; the least is %d, and -1 stands for no limit", r.CPUQuota, leastQuota)
	}
	if err := cpusets(r); err != nil {
		return err
	}
	c := &specs.LinuxCPU{Cpus: r.CpusetCPUs, Mems: r.CpusetMems}
	if r.CPUPeriod != 0 {
		c.Period = ptr(uint64(r.CPUPeriod))
	}
	if r.CPUQuota != 0 {
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
	within, err := covers(online, r.CpusetCPUs)
	if err != nil || !within {
		return invalid(resourcesField+"cpuset_cpus", "is %q; this node has the processors %s", r.CpusetCPUs, online)
	}
	return nil
}

// covers says whether all numbers of a list like "0-3,7" are in another one.
func covers(all, some string) (bool, error) {
	have, err := spans(all)
	if err != nil {
		return false, err
	}
	want, err := spans(some)
	if err != nil {
		return false, err
	}
	for _, w := range want {
		for n := w[0]; n <= w[1]; n++ {
			if !contains(have, n) {
				return false, nil
			}
		}
	}
	return true, nil
}

func contains(list [][2]int, n int) bool {
	for _, s := range list {
		if n >= s[0] && n <= s[1] {
			return true
		}
	}
	return false
}

var errBackwards = errors.New("the range runs backwards")

func spans(list string) ([][2]int, error) {
	var out [][2]int
	for item := range strings.SplitSeq(list, ",") {
		from, to, is := strings.Cut(item, "-")
		if !is {
			to = from
		}
		a, errA := strconv.Atoi(from)
		b, errB := strconv.Atoi(to)
		if err := errors.Join(errA, errB); err != nil {
			return nil, err
		}
		if b < a {
			return nil, errBackwards
		}
		out = append(out, [2]int{a, b})
	}
	return out, nil
}
