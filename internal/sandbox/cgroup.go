package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// DefaultCgroup is where the pods are that name no parent, where Config does
// not say otherwise: /fairlead, or fairlead.slice under systemd.
const DefaultCgroup = "fairlead"

// createCgroup is the cgroup that the pod's containers go into. The caller's
// parent is the caller's: its limits are set already. Without one it is ours,
// with the limits that the caller has worked out for the pod.
func (d *Driver) createCgroup(ctx context.Context, id pod.ID, c *pod.Config) (string, error) {
	if c.CgroupParent != "" {
		return c.CgroupParent, checkParent(c.CgroupParent, d.cfg.SystemdCgroups)
	}
	own, name := d.ownCgroup(id)
	own.Resources = limits(c.Resources, c.Overhead)
	if d.cfg.SystemdCgroups {
		// If this fails, a slice that another has just started may stay when it
		// is empty. That systemd cannot be asked at all, the next step says.
		_ = startSlice(ctx, name)
	}
	// The folder above goes with its last pod, which may be just now.
	for try := 0; ; try++ {
		err := apply(own)
		if err == nil {
			if d.cfg.SystemdCgroups {
				_ = adoptSlices(ctx, name) // as above; the next pod tries again
			}
			return name, nil
		}
		if !isGone(err) || try == 20 || ctx.Err() != nil {
			return "", fmt.Errorf("make the cgroup %s: %w", name, err)
		}
	}
}

// isGone says whether a cgroup was removed meanwhile: its files have no names
// then, and those that are open say ENODEV.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

func apply(c *cgroups.Cgroup) error {
	m, err := manager.New(c)
	if err != nil {
		return err
	}
	if err := m.Apply(-1); err != nil { // no process goes into it
		return err
	}
	return setLimits(m, c.Resources)
}

// learning is for the library: at its first call it finds out the names of some
// files on cgroup v1, and keeps them without a lock.
var learning struct {
	sync.Mutex
	over atomic.Bool
}

func setLimits(m cgroups.Manager, r *cgroups.Resources) error {
	if learning.over.Load() {
		return m.Set(r)
	}
	learning.Lock()
	defer learning.Unlock()
	err := m.Set(r)
	if err == nil {
		learning.over.Store(true)
	}
	return err
}

// checkParent refuses a parent of the other driver: its cgroups would be made
// where the caller does not look for them.
func checkParent(parent string, systemd bool) error {
	slice := strings.HasSuffix(path.Base(parent), ".slice")
	switch {
	case slice && !systemd:
		return fmt.Errorf("linux.cgroup_parent %q is a systemd slice, and the cgroup driver is cgroupfs; set the driver of both sides to the same: %w", parent, errdefs.ErrInvalidArgument)
	case !slice && systemd:
		return fmt.Errorf("linux.cgroup_parent %q is not a slice, and the cgroup driver is systemd; set the driver of both sides to the same: %w", parent, errdefs.ErrInvalidArgument)
	case strings.ContainsRune(parent, 0) || strings.Contains("/"+parent+"/", "/../"):
		return fmt.Errorf("linux.cgroup_parent %q leads elsewhere: %w", parent, errdefs.ErrInvalidArgument)
	}
	return nil
}

// ownCgroup follows from the id alone, so that it can be found without a record.
func (d *Driver) ownCgroup(id pod.ID) (*cgroups.Cgroup, string) {
	if d.cfg.SystemdCgroups {
		name := d.cfg.Cgroup + "-pod" + string(id) + ".slice"
		return &cgroups.Cgroup{Name: name, Parent: d.cfg.Cgroup + ".slice", Systemd: true}, name
	}
	name := path.Join("/", d.cfg.Cgroup, "pod"+string(id))
	return &cgroups.Cgroup{Path: name}, name
}

// removeCgroup removes our own cgroup. One of the caller's never has its name.
func (d *Driver) removeCgroup(ctx context.Context, id pod.ID) error {
	own, name := d.ownCgroup(id)
	own.Resources = &cgroups.Resources{SkipDevices: true}
	m, err := manager.New(own)
	if err != nil {
		return fmt.Errorf("find the cgroup %s: %w", name, err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	paths := maps.Clone(m.GetPaths()) // Destroy empties it
	if err := m.Destroy(); err != nil {
		return fmt.Errorf("remove the cgroup %s, which has processes in it or is in use: %w: %w", name, err, errdefs.ErrPrecondition)
	}
	if d.cfg.SystemdCgroups {
		return nil // systemd stops the slices above; see startSlice
	}
	if cgroups.IsCgroup2HybridMode() {
		// Runtimes also make it in the tree of cgroup v2 beside those of v1.
		unified := filepath.Join("/sys/fs/cgroup/unified", name)
		if err := cgroups.RemovePath(unified); err != nil {
			return fmt.Errorf("remove the cgroup %s: %w", unified, err)
		}
		paths["unified"] = unified
	}
	for _, p := range paths {
		if err := removeEmpty(filepath.Dir(p)); err != nil {
			return err
		}
	}
	return nil
}

// removeEmpty removes a cgroup that is of no more use, and minds no other.
func removeEmpty(dir string) error {
	err := os.Remove(dir)
	for _, fine := range []error{fs.ErrNotExist, unix.EBUSY, unix.ENOTEMPTY} {
		if errors.Is(err, fine) {
			return nil
		}
	}
	return err
}

// limits of a pod are those of its containers together and of what running
// them costs. A limit that only one side has is no limit of the pod.
func limits(containers, overhead *pod.Resources) *cgroups.Resources {
	out := &cgroups.Resources{SkipDevices: true}
	if containers == nil {
		return out
	}
	extra := overhead
	if extra == nil {
		extra = &pod.Resources{}
	}
	if containers.CPUShares > 0 {
		out.CpuShares = uint64(containers.CPUShares + max(extra.CPUShares, 0))
		out.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(out.CpuShares)
	}
	if containers.CPUQuota > 0 {
		period := containers.CPUPeriod
		if period <= 0 {
			period = defaultPeriod
		}
		out.CpuPeriod = uint64(period)
		out.CpuQuota = containers.CPUQuota
		if extra.CPUQuota > 0 {
			other := extra.CPUPeriod
			if other <= 0 {
				other = defaultPeriod
			}
			out.CpuQuota += extra.CPUQuota * period / other
		}
	}
	if containers.MemoryLimit > 0 {
		out.Memory = containers.MemoryLimit + max(extra.MemoryLimit, 0)
	}
	return out
}

// defaultPeriod is the kernel's, in us.
const defaultPeriod = 100_000
