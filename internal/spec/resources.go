package spec

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/pod"
	"fairlead.run/internal/spec/host"
)

// resources are the limits of the request. The rules for devices are set by
// another step, and Update leaves them alone.
func (b *build) resources(context.Context) error {
	warnings, err := b.limit(b.spec, b.req.Container.Limits())
	b.warnings = append(b.warnings, warnings...)
	return err
}

// limit puts limits into a spec, of which the rules for devices and block I/O are
// not a part.
func (b *Builder) limit(s *specs.Spec, r *pod.Resources) (warnings []string, err error) {
	out, warnings, err := b.convertResources(r)
	if err != nil {
		return nil, err
	}
	out.Devices, out.BlockIO = s.Linux.Resources.Devices, s.Linux.Resources.BlockIO
	s.Linux.Resources = out
	return warnings, nil
}

// convertResources takes nil for "no limits".
func (b *Builder) convertResources(r *pod.Resources) (*specs.LinuxResources, []string, error) {
	out := &specs.LinuxResources{}
	if r == nil {
		return out, nil, nil
	}
	if err := cpu(r, out); err != nil {
		return nil, nil, err
	}
	warnings, err := memory(r, out, b.cfg.Host)
	if err != nil {
		return nil, nil, err
	}
	huge, err := hugepages(r, out, b.cfg.Host.HugeTLB)
	if err != nil {
		return nil, nil, err
	}
	plugin(r.Plugin, out)
	return out, append(warnings, huge...), unified(r, out, b.cfg.Host.Unified)
}

// plugin adds what NRI plugins ask for; the kernel refuses what it cannot do.
func plugin(p *pod.PluginLimits, out *specs.LinuxResources) {
	if p == nil {
		return
	}
	if out.Memory == nil {
		out.Memory = &specs.LinuxMemory{}
	}
	out.Memory.Reservation, out.Memory.KernelTCP = set(p.MemoryReservation), set(p.MemoryKernelTCP)
	out.Memory.Swappiness, out.Memory.DisableOOMKiller = p.MemorySwappiness, p.DisableOOMKiller
	if out.CPU == nil {
		out.CPU = &specs.LinuxCPU{}
	}
	out.CPU.RealtimeRuntime, out.CPU.RealtimePeriod = set(p.CPURealtimeRuntime), set(p.CPURealtimePeriod)
}

// set is a pointer to v, or nil for a zero that means "not set".
func set[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

const resourcesField = "linux.resources."

// memory counts swap within the limit of memory if nothing else is said, so
// that a container cannot swap.
func memory(r *pod.Resources, out *specs.LinuxResources, h host.Host) (warnings []string, err error) {
	limit, swap := r.MemoryLimit, r.MemorySwapLimit
	switch {
	case limit < -1:
		return nil, invalid(resourcesField+"memory_limit_in_bytes", "%d is negative", limit)
	case swap < -1:
		return nil, invalid(resourcesField+"memory_swap_limit_in_bytes", "%d is negative", swap)
	case swap > 0 && limit <= 0:
		return nil, invalid(resourcesField+"memory_swap_limit_in_bytes", "needs memory_limit_in_bytes; it counts memory and swap together")
	case swap > 0 && swap < limit:
		return nil, invalid(resourcesField+"memory_swap_limit_in_bytes", "%d is below memory_limit_in_bytes %d; it counts memory and swap together", swap, limit)
	}
	if limit == 0 && swap == 0 {
		return nil, nil
	}
	m := &specs.LinuxMemory{}
	if limit != 0 {
		m.Limit = ptr(limit)
	}
	if swap == 0 {
		swap = limit
	} else if !h.Swap {
		warnings = append(warnings, fmt.Sprintf("linux.resources.memory_swap_limit_in_bytes %d: this kernel does not account swap, so nothing limits it", swap))
	}
	if h.Swap {
		m.Swap = ptr(swap)
	}
	out.Memory = m
	return warnings, nil
}

var pageSize = regexp.MustCompile(`^[1-9][0-9]*(KB|MB|GB)$`)

// hugepages sets limits only if there is something to limit them. kubelet sends
// a limit of zero for every size of the node, on every container.
func hugepages(r *pod.Resources, out *specs.LinuxResources, available func() bool) (warnings []string, err error) {
	if len(r.HugepageLimits) == 0 {
		return nil, nil
	}
	there, sizes := available(), host.HugePageSizes()
	for i, h := range r.HugepageLimits {
		if !pageSize.MatchString(h.PageSize) {
			return nil, invalid(fmt.Sprintf("%shugepage_limits[%d].page_size", resourcesField, i), "%q is not a size like 2MB", h.PageSize)
		}
		if h.Limit > 0 && !slices.Contains(sizes, h.PageSize) {
			return nil, invalid(fmt.Sprintf("%shugepage_limits[%d].page_size", resourcesField, i), "this node has no pages of %s, but of %s", h.PageSize, strings.Join(sizes, ", "))
		}
		if there && slices.Contains(sizes, h.PageSize) {
			out.HugepageLimits = append(out.HugepageLimits, specs.LinuxHugepageLimit{Pagesize: h.PageSize, Limit: h.Limit})
		} else if h.Limit > 0 {
			warnings = append(warnings, fmt.Sprintf("linux.resources.hugepage_limits: there is no hugetlb controller, so nothing limits pages of %s to %d bytes", h.PageSize, h.Limit))
		}
	}
	return warnings, nil
}

var unifiedKey = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[A-Za-z0-9_]+)+$`)

// unified are files of cgroup v2 by name. One of them, pids.max, every runtime
// can set on v1 as well; the others mean nothing there.
func unified(r *pod.Resources, out *specs.LinuxResources, v2 bool) error {
	keys := make([]string, 0, len(r.Unified))
	for k := range r.Unified {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		v, field := r.Unified[k], resourcesField+"unified["+strconv.Quote(k)+"]"
		switch {
		case !unifiedKey.MatchString(k) || slices.Contains([]string{"cgroup.procs", "cgroup.threads"}, k):
			return invalid(field, "is no file of a controller, such as memory.high")
		case k == "pids.max":
			n, err := pidsMax(v)
			if err != nil {
				return invalid(field, "%q is neither a number of processes nor max", v)
			}
			out.Pids = &specs.LinuxPids{Limit: ptr(n)}
		case !v2:
			return unsupported(field, "needs cgroup v2, and this host has v1")
		default:
			if out.Unified == nil {
				out.Unified = map[string]string{}
			}
			out.Unified[k] = v
		}
	}
	return nil
}

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
