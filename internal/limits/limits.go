// Package limits checks what pods and containers are to be limited to, field by
// field, and writes it as the OCI runtime spec has it.
//
// Pods and containers are limited by the same fields of the CRI, and are told the
// same of a value that cannot be. It sets nothing: a container's limits are the
// runtime's to set, and a pod's the sandbox's.
package limits

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Convert refuses what this host cannot be limited to, by field with at before its
// name, and returns warnings of what nothing here limits. It takes nil for "no
// limits". What only plugins ask for is not looked at.
func Convert(at string, r *pod.Resources, h Host) (*specs.LinuxResources, []string, error) {
	out := &specs.LinuxResources{}
	if r == nil {
		return out, nil, nil
	}
	c := conversion{at: at, r: r, out: out}
	if err := c.cpu(); err != nil {
		return nil, nil, err
	}
	if err := c.memory(h); err != nil {
		return nil, nil, err
	}
	if err := c.hugepages(h.HugeTLB); err != nil {
		return nil, nil, err
	}
	if err := c.unified(h.Unified); err != nil {
		return nil, nil, err
	}
	return out, c.warnings, nil
}

// conversion is of the limits in r, whose fields are named with at before them.
type conversion struct {
	at       string
	r        *pod.Resources
	out      *specs.LinuxResources
	warnings []string
}

func (c *conversion) warn(field, format string, args ...any) {
	c.warnings = append(c.warnings, c.at+field+fmt.Sprintf(format, args...))
}

func (c *conversion) invalid(field, format string, args ...any) error {
	return fmt.Errorf("%s%s %s: %w", c.at, field, fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
}

// memory counts swap within the limit of memory if nothing else is said, so
// that a container cannot swap.
func (c *conversion) memory(h Host) error {
	limit, swap := c.r.MemoryLimit, c.r.MemorySwapLimit
	switch {
	case limit < -1:
		return c.invalid("memory_limit_in_bytes", "%d is negative", limit)
	case swap < -1:
		return c.invalid("memory_swap_limit_in_bytes", "%d is negative", swap)
	case swap > 0 && limit <= 0:
		return c.invalid("memory_swap_limit_in_bytes", "needs memory_limit_in_bytes; it counts memory and swap together")
	case swap > 0 && swap < limit:
		return c.invalid("memory_swap_limit_in_bytes", "%d is below memory_limit_in_bytes %d; it counts memory and swap together", swap, limit)
	}
	if limit == 0 && swap == 0 {
		return nil
	}
	m := &specs.LinuxMemory{}
	if limit != 0 {
		m.Limit = ptr(limit)
	}
	if swap == 0 {
		swap = limit
	} else if !h.Swap {
		c.warn("memory_swap_limit_in_bytes", " %d: this kernel does not account swap, so nothing limits it", swap)
	}
	if h.Swap {
		m.Swap = ptr(swap)
	}
	c.out.Memory = m
	return nil
}

var pageSize = regexp.MustCompile(`^[1-9][0-9]*(KB|MB|GB)$`)

// hugepages sets limits only if there is something to limit them. kubelet sends
// a limit of zero for every size of the node, on every container.
func (c *conversion) hugepages(available func() bool) error {
	if len(c.r.HugepageLimits) == 0 {
		return nil
	}
	there, sizes := available(), PageSizes()
	for i, h := range c.r.HugepageLimits {
		if !pageSize.MatchString(h.PageSize) {
			return c.invalid(fmt.Sprintf("hugepage_limits[%d].page_size", i), "%q is not a size like 2MB", h.PageSize)
		}
		if h.Limit > 0 && !slices.Contains(sizes, h.PageSize) {
			return c.invalid(fmt.Sprintf("hugepage_limits[%d].page_size", i), "this node has no pages of %s, but of %s", h.PageSize, strings.Join(sizes, ", "))
		}
		if there && slices.Contains(sizes, h.PageSize) {
			c.out.HugepageLimits = append(c.out.HugepageLimits, specs.LinuxHugepageLimit{Pagesize: h.PageSize, Limit: h.Limit})
		} else if h.Limit > 0 {
			c.warn("hugepage_limits", ": there is no hugetlb controller, so nothing limits pages of %s to %d bytes", h.PageSize, h.Limit)
		}
	}
	return nil
}

var unifiedKey = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[A-Za-z0-9_]+)+$`)

// notLimits are files of every cgroup that no controller has.
var notLimits = []string{"cgroup.procs", "cgroup.threads", "cgroup.kill", "cgroup.freeze", "cgroup.type", "cgroup.subtree_control"}

// unified are files of cgroup v2 by name. One of them, pids.max, every runtime
// can set on v1 as well; the others mean nothing there.
func (c *conversion) unified(v2 bool) error {
	for _, k := range slices.Sorted(maps.Keys(c.r.Unified)) {
		v, field := c.r.Unified[k], UnifiedField(k)
		switch {
		case !unifiedKey.MatchString(k) || slices.Contains(notLimits, k):
			return c.invalid(field, "is no file of a controller, such as memory.high")
		case k == "pids.max":
			n, err := pidsMax(v)
			if err != nil {
				return c.invalid(field, "%q is neither a number of processes nor max", v)
			}
			c.out.Pids = &specs.LinuxPids{Limit: ptr(n)}
		case !v2:
			return fmt.Errorf("%s%s needs cgroup v2, and this host has v1: %w", c.at, field, errdefs.ErrUnimplemented)
		default:
			if c.out.Unified == nil {
				c.out.Unified = map[string]string{}
			}
			c.out.Unified[k] = v
		}
	}
	return nil
}

// UnifiedField is how a file of the field unified is named.
func UnifiedField(file string) string { return "unified[" + strconv.Quote(file) + "]" }

func pidsMax(v string) (int64, error) {
	v = strings.TrimSpace(v)
	if v == "max" {
		return -1, nil
	}
	n, err := strconv.ParseUint(v, 10, 31)
	if err == nil && n == 0 {
		err = strconv.ErrRange // the spec of the runtimes takes 0 for "none"
	}
	return int64(n), err
}

func ptr[T any](v T) *T { return &v }
