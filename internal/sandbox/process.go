package sandbox

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// LimitProcess gives limits to the cgroup of the pod's own process, which is below
// the pod's and holds the sandbox in which all containers run. It wraps
// errdefs.ErrPrecondition if more memory is in use.
func (d *Driver) LimitProcess(_ context.Context, r *pod.Record, to *pod.Resources) error {
	own := &cgroups.Cgroup{Path: path.Join("/", r.Sandbox.Cgroup, string(r.ID))}
	if d.cfg.SystemdCgroups {
		own = &cgroups.Cgroup{Name: string(r.ID), ScopePrefix: scopePrefix, Parent: path.Base(r.Sandbox.Cgroup), Systemd: true}
	}
	own.Resources = &cgroups.Resources{SkipDevices: true}
	m, err := manager.New(own)
	if err == nil {
		dir := m.Path("memory")
		own.Resources = explicit(to, hasSwap(dir))
		err = fits(dir, own.Resources.Memory)
	}
	if err == nil {
		err = setLimits(m, own.Resources)
	}
	if isInUse(err) {
		err = fmt.Errorf("%w: %w", err, errdefs.ErrPrecondition)
	}
	if err != nil {
		return fmt.Errorf("set the limits of the sandbox of pod %s: %w", r.ID.Short(), err)
	}
	return nil
}

// scopePrefix is that of the scopes of containers; see spec.CgroupsPath.
const scopePrefix = "fairlead"

// explicit are limits of which none is left as it is.
func explicit(r *pod.Resources, swap bool) *cgroups.Resources {
	out := &cgroups.Resources{
		SkipDevices: true,
		CpuShares:   uint64(r.CPUShares), CpuWeight: cgroups.ConvertCPUSharesToCgroupV2Value(uint64(r.CPUShares)),
		CpuQuota: r.CPUQuota, CpuPeriod: uint64(r.CPUPeriod), Memory: r.MemoryLimit,
	}
	if swap {
		out.MemorySwap = r.MemorySwapLimit
	}
	return out
}

// hasSwap says whether the kernel accounts swap.
func hasSwap(dir string) bool {
	for _, name := range []string{"memory.swap.max", "memory.memsw.limit_in_bytes"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// fits refuses a limit that cgroup v2 would enforce by killing: version 1 refuses
// it itself. What the kernel can drop, the files that it has read, does not count.
func fits(dir string, limit int64) error {
	current, err := os.ReadFile(filepath.Join(dir, "memory.current"))
	if err != nil || limit <= 0 {
		return nil // cgroup v1, or no limit
	}
	stat, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return err
	}
	held, _ := strconv.ParseInt(strings.TrimSpace(string(current)), 10, 64)
	for line := range strings.Lines(string(stat)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, _ := strconv.ParseInt(value, 10, 64)
		switch key {
		case "file":
			held -= n
		case "shmem": // is a part of file, and the memory of a sandbox
			held += n
		}
	}
	if held > limit {
		return fmt.Errorf("%d bytes of memory are in use, which is more than %d: %w", held, limit, errdefs.ErrPrecondition)
	}
	return nil
}
