package spec

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/spec/host"
)

// CgroupDriver is who makes the cgroups of containers.
type CgroupDriver string

// The drivers that the CRI knows.
const (
	CgroupFS      CgroupDriver = "cgroupfs"
	CgroupSystemd CgroupDriver = "systemd"
)

// Rlimit is a resource limit of setrlimit(2). Unlimited stands for none.
type Rlimit struct {
	Soft uint64
	Hard uint64
}

// Unlimited is RLIM_INFINITY.
const Unlimited = uint64(unix.RLIM_INFINITY)

// Config is what a Builder works with.
type Config struct {
	StateDir     string       // containers/<id> below it are the bundles
	RootDir      string       // containers/<id>/volumes below it outlive a boot
	CgroupDriver CgroupDriver // of the whole node
	Monitor      string       // fairlead-monitor, which has the pause program in it
	// DefaultRlimits are the limits of every container, by name: "nofile" or
	// "RLIMIT_NOFILE". What is not named is inherited.
	DefaultRlimits map[string]Rlimit
	Host           host.Host
	Edits          []Editor // of the specs of containers, in this order
	// Map mounts a copy of a mount's source with mapped owners beside the bundle
	// and returns where. Whoever unmounts the root file system unmounts it too.
	Map func(context.Context, pod.MapRequest) (string, error)
}

// Editor changes the spec of a container once all that the pod asks for is in it,
// and notes in r.Container.Adjusted what is not the caller's wish.
type Editor interface {
	Edit(ctx context.Context, r *pod.BundleRequest, s *specs.Spec) error
}

func (c *Config) validate() error {
	for name, dir := range map[string]string{"StateDir": c.StateDir, "RootDir": c.RootDir, "Monitor": c.Monitor} {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("configure bundles: %s %q is not an absolute path: %w", name, dir, errdefs.ErrInvalidArgument)
		}
	}
	if c.CgroupDriver != CgroupFS && c.CgroupDriver != CgroupSystemd {
		return fmt.Errorf("configure bundles: cgroup driver %q is neither %s nor %s: %w", c.CgroupDriver, CgroupFS, CgroupSystemd, errdefs.ErrInvalidArgument)
	}
	return nil
}

// namedRlimit is a limit as it goes into a spec.
type namedRlimit struct {
	name string
	Rlimit
}

// rlimits is the wanted limits in the order of their names, cut down to what
// this process may set.
func rlimits(want map[string]Rlimit, h host.Host) (out []namedRlimit, warnings []string, err error) {
	for name, l := range want {
		n := "RLIMIT_" + strings.TrimPrefix(strings.ToUpper(name), "RLIMIT_")
		if _, ok := host.RlimitNumbers[n]; !ok {
			return nil, nil, fmt.Errorf("configure rlimit %q: there is no such limit: %w", name, errdefs.ErrInvalidArgument)
		}
		if l.Soft > l.Hard {
			return nil, nil, fmt.Errorf("configure rlimit %q: soft limit %d is above hard limit %d: %w", name, l.Soft, l.Hard, errdefs.ErrInvalidArgument)
		}
		if own, ok := h.Rlimits[n]; ok && !h.SysResource && l.Hard > own {
			warnings = append(warnings, fmt.Sprintf("rlimit %s: %d is above this process's own hard limit, and without CAP_SYS_RESOURCE it cannot be raised; using %d", n, l.Hard, own))
			l.Hard, l.Soft = own, min(l.Soft, own)
		}
		if slices.ContainsFunc(out, func(o namedRlimit) bool { return o.name == n }) {
			return nil, nil, fmt.Errorf("configure rlimit %q: %s is there twice: %w", name, n, errdefs.ErrInvalidArgument)
		}
		out = append(out, namedRlimit{name: n, Rlimit: l})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].name < out[j].name })
	sort.Strings(warnings)
	return out, warnings, nil
}
