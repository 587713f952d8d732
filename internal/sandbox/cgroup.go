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
	"strconv"
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
	var warnings []string
	var err error
	if own.Resources, warnings, err = limitsOf(atCreation, c); err != nil {
		return "", err
	}
	if d.cfg.SystemdCgroups {
		// If this fails, a slice that another has just started may stay when it
		// is empty. That systemd cannot be asked at all, the next step says.
		_ = startSlice(ctx, name)
	}
	// The folder above goes with its last pod, which may be just now.
	for try := 0; ; try++ {
		swap, err := apply(own)
		if err == nil {
			d.warn(id, append(warnings, swap...))
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

func apply(c *cgroups.Cgroup) (warnings []string, err error) {
	m, err := manager.New(c)
	if err != nil {
		return nil, err
	}
	if err := m.Apply(-1); err != nil { // no process goes into it
		return nil, refused(err)
	}
	if !c.Systemd {
		// Runtimes make it also where nothing is limited. They do not try again when the
		// folder above goes with another pod meanwhile, so it is there before they begin.
		for _, p := range m.GetPaths() {
			if err := os.MkdirAll(p, 0o755); err != nil {
				return nil, err
			}
		}
	}
	warnings, err = canHave(atCreation, m, c.Resources)
	if err == nil {
		err = setLimits(m, c.Resources)
	}
	return warnings, err
}

// learning is for the library: at its first call it finds out the names of some
// files on cgroup v1, and keeps them without a lock.
var learning struct {
	sync.Mutex
	over atomic.Bool
}

func setLimits(m cgroups.Manager, r *cgroups.Resources) error {
	return refused(learnAndSet(m, r))
}

// refused adds to an error what it means to a caller. Before the kernel sees the value
// of a file, the library makes a number of it, which systemd has for a property.
func refused(err error) error {
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE):
		return fmt.Errorf("the kernel does not take a limit: %w: %w", err, errdefs.ErrInvalidArgument)
	case errors.As(err, new(*strconv.NumError)):
		return fmt.Errorf("systemd does not take a limit: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return err
}

func learnAndSet(m cgroups.Manager, r *cgroups.Resources) error {
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
