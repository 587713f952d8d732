package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// cgroupMount is where cgroups are mounted.
const cgroupMount = "/sys/fs/cgroup"

// hierarchies are the top folders of all cgroups: one on cgroup v2.
func hierarchies() ([]string, error) {
	if cgroups.IsCgroup2UnifiedMode() {
		return []string{cgroupMount}, nil
	}
	entries, err := os.ReadDir(cgroupMount)
	if err != nil {
		return nil, fmt.Errorf("find the cgroup hierarchies: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() { // links such as cpu -> cpu,cpuacct are not
			out = append(out, filepath.Join(cgroupMount, e.Name()))
		}
	}
	return out, nil
}

// ownTop is the folder of our pods' cgroups below a hierarchy.
func (d *Driver) ownTop() string {
	if !d.cfg.SystemdCgroups {
		return d.cfg.Cgroup
	}
	return slicePath(d.cfg.Cgroup + ".slice")
}

// podOf is the pod of a cgroup by its name, or "".
func (d *Driver) podOf(name string) pod.ID {
	before, after := "pod", ""
	if d.cfg.SystemdCgroups {
		before, after = d.cfg.Cgroup+"-pod", ".slice"
	}
	if !strings.HasPrefix(name, before) || !strings.HasSuffix(name, after) {
		return ""
	}
	return pod.ID(strings.TrimSuffix(strings.TrimPrefix(name, before), after))
}

// heldCgroups lists the cgroups of pods in our own, and the containers' in
// these that have no bundle any more by which their handler would find them.
func (d *Driver) heldCgroups(records []*pod.Record) ([]pod.Held, error) {
	tops, err := hierarchies()
	if err != nil {
		return nil, err
	}
	seen := map[pod.Held]bool{}
	for _, r := range records {
		if d.wantsCgroup(r) && len(d.lackingCgroups(r)) > 0 {
			seen[d.podCgroup(r)] = true // in part only, which is not enough
		}
	}
	var out []pod.Held
	for _, top := range tops {
		for _, h := range d.cgroupsIn(filepath.Join(top, d.ownTop())) {
			if !seen[h] {
				seen[h] = true
				out = append(out, h)
			}
		}
	}
	return out, nil
}

// wantsCgroup says whether a cgroup of ours has to be there for the pod.
func (d *Driver) wantsCgroup(r *pod.Record) bool {
	return r.State == pod.Running && r.Config.CgroupParent == "" && r.Sandbox.Cgroup != ""
}

// podCgroup is that cgroup.
func (d *Driver) podCgroup(r *pod.Record) pod.Held {
	return pod.Held{Kind: pod.KindCgroup, Name: r.Sandbox.Cgroup, Owner: string(r.ID)}
}

// limiting are the controllers in each of which a pod has its cgroup from its
// start on, where the host has them as hierarchies of cgroup v1. Others may have
// been mounted later.
var limiting = []string{"blkio", "cpu", "cpuacct", "cpuset", "freezer", "memory", "pids"}

// lackingCgroups are those in which it is gone. What systemd makes, it also
// removes from hierarchies where it is of no use.
func (d *Driver) lackingCgroups(r *pod.Record) (out []string) {
	own, name := d.ownCgroup(r.ID)
	if d.cfg.SystemdCgroups || name != r.Sandbox.Cgroup || cgroups.IsCgroup2UnifiedMode() {
		return nil
	}
	own.Resources = &cgroups.Resources{SkipDevices: true}
	m, err := manager.New(own)
	if err != nil {
		return nil // what cannot be looked at is not said to be missing
	}
	paths := m.GetPaths()
	for _, c := range limiting {
		if _, err := os.Stat(paths[c]); paths[c] != "" && errors.Is(err, fs.ErrNotExist) {
			out = append(out, c)
		}
	}
	return out
}

// cgroupsIn lists the cgroups in our own one of one hierarchy.
func (d *Driver) cgroupsIn(base string) (out []pod.Held) {
	for _, name := range folders(base) {
		id := d.podOf(name)
		if id == "" {
			continue
		}
		_, own := d.ownCgroup(id)
		for _, child := range folders(filepath.Join(base, name)) {
			if owner := containerOf(child); !d.hasBundle(owner) {
				out = append(out, pod.Held{Kind: pod.KindCgroup, Name: path.Join(own, child), Owner: owner})
			}
		}
		out = append(out, pod.Held{Kind: pod.KindCgroup, Name: own, Owner: string(id)})
	}
	return out
}

func (d *Driver) hasBundle(id string) bool {
	_, err := os.Lstat(filepath.Join(d.cfg.StateDir, "containers", id))
	return err == nil
}

// containerOf is the container of a cgroup by its name: itself, or as systemd
// has it, fairlead-ID.scope.
func containerOf(name string) string {
	return strings.TrimSuffix(strings.TrimPrefix(name, "fairlead-"), ".scope")
}

// folders lists the folders in a folder, none if it is not there.
func folders(dir string) (out []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out
}

// dropCgroup kills what is in a cgroup of ours and removes it.
func (d *Driver) dropCgroup(ctx context.Context, h pod.Held) error {
	tops, err := hierarchies()
	if err != nil {
		return err
	}
	// The name of a pod's cgroup under systemd is that of the slice alone.
	rest := strings.TrimPrefix(strings.TrimPrefix(h.Name, "/"), d.cfg.Cgroup+"/")
	if top, _, _ := strings.Cut(rest, "/"); d.podOf(top) == "" || !filepath.IsLocal(rest) {
		return fmt.Errorf("remove cgroup %q: it is not in %s: %w", h.Name, d.cfg.Cgroup, errdefs.ErrInvalidArgument)
	}
	var dirs []string
	for _, top := range tops {
		dirs = append(dirs, filepath.Join(top, d.ownTop(), rest))
	}
	if err := killAll(ctx, dirs); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", h.Name, err)
	}
	if _, own := d.ownCgroup(pod.ID(h.Owner)); own == h.Name {
		return d.removeCgroup(ctx, pod.ID(h.Owner))
	}
	var errs []error
	for _, dir := range dirs {
		if err := cgroups.RemovePath(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove cgroup %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

// killWait bounds the wait for killed processes to be gone.
const killWait = 10 * time.Second

// killAll kills every process in the folders, again and again until none is
// left: it may fork meanwhile.
func killAll(ctx context.Context, dirs []string) error {
	for end := time.Now().Add(killWait); ; {
		left, err := killOnce(dirs)
		if err != nil || left == 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d processes in it were killed and do not end; they may wait for a device or a network file system: %w", left, errdefs.ErrDeadline)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// killOnce says how many processes it has killed.
func killOnce(dirs []string) (killed int, err error) {
	for _, dir := range dirs {
		pids, err := cgroups.GetAllPids(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			return killed, err
		}
		for _, pid := range pids {
			if pid <= 0 {
				continue // of a PID namespace that is not seen from here
			}
			killed++
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return killed, fmt.Errorf("kill process %d in it: %w", pid, err)
			}
		}
	}
	return killed, nil
}
