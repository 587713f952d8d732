package limits

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func (c *conversion) cpu() error {
	if field, why := c.r.CPUFault(); field != "" {
		return c.invalid(field, "%s", why)
	}
	if err := c.cpusets(); err != nil {
		return err
	}
	l := &specs.LinuxCPU{Cpus: c.r.CpusetCPUs, Mems: c.r.CpusetMems}
	if c.r.CPUPeriod != 0 {
		l.Period = ptr(uint64(c.r.CPUPeriod))
	}
	// No limit is what a new cgroup has. crun 1.8 cannot write it on cgroup v1.
	if c.r.CPUQuota > 0 {
		l.Quota = ptr(c.r.CPUQuota)
	}
	if c.r.CPUShares != 0 {
		l.Shares = ptr(uint64(c.r.CPUShares))
	}
	if *l != (specs.LinuxCPU{}) {
		c.out.CPU = l
	}
	return nil
}

var numberList = regexp.MustCompile(`^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$`)

func (c *conversion) cpusets() error {
	for _, set := range []struct{ field, list, there, what string }{
		{"cpuset_cpus", c.r.CpusetCPUs, "/sys/devices/system/cpu/online", "processors"},
		{"cpuset_mems", c.r.CpusetMems, "/sys/devices/system/node/has_memory", "memory nodes"},
	} {
		if set.list == "" {
			continue
		}
		if !numberList.MatchString(set.list) {
			return c.invalid(set.field, "%q is not a list like 0-3,7", set.list)
		}
		there, err := os.ReadFile(set.there)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without NUMA
		}
		if err != nil {
			return fmt.Errorf("read which %s there are: %w", set.what, err)
		}
		have := strings.TrimSpace(string(there))
		if within, err := covers(have, set.list); err != nil || !within {
			return c.invalid(set.field, "is %q; this node has the %s %s", set.list, set.what, have)
		}
	}
	return nil
}
