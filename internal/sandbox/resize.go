package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Resize gives the pod's cgroup the limits of another configuration. A parent
// that the caller has named has limits of the caller's.
func (d *Driver) Resize(_ context.Context, r *pod.Record, to *pod.Config) error {
	if r.Config.CgroupParent != "" {
		return nil
	}
	own, name := d.ownCgroup(r.ID)
	own.Resources = changed(limits(r.Config.Resources, r.Config.Overhead), limits(to.Resources, to.Overhead))
	m, err := manager.New(own)
	if err == nil {
		err = setLimits(m, own.Resources)
	}
	if isInUse(err) {
		return fmt.Errorf("set the limits of cgroup %s, of which more is in use: %w: %w", name, err, errdefs.ErrPrecondition)
	}
	if err != nil {
		return fmt.Errorf("set the limits of cgroup %s: %w", name, err)
	}
	return nil
}

// isInUse says that the kernel refused a limit because more than that is in use
// and cannot be reclaimed. Only cgroup v1 does. For memory, the library replaces
// the kernel's EBUSY by words of its own.
func isInUse(err error) bool {
	return err != nil && (errors.Is(err, unix.EBUSY) || strings.Contains(err.Error(), "unable to set memory limit to"))
}

// Without a limit the kernel has these. For the library a zero is no change.
const (
	unlimited     = -1
	defaultShares = 1024
)

// changed is the new limits, with those lifted that are no more.
func changed(old, to *cgroups.Resources) *cgroups.Resources {
	if old.Memory != 0 && to.Memory == 0 {
		to.Memory = unlimited
	}
	if old.CpuQuota != 0 && to.CpuQuota == 0 {
		to.CpuQuota, to.CpuPeriod = unlimited, defaultPeriod
	}
	if old.CpuShares != 0 && to.CpuShares == 0 {
		to.CpuShares = defaultShares
		to.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(defaultShares)
	}
	return to
}
