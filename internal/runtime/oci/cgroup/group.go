// Package cgroup finds the cgroup of one container from what its bundle says, and
// signals, empties and removes it. It sets no limits: the OCI runtimes do.
package cgroup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// Root is where cgroups are mounted.
const Root = "/sys/fs/cgroup"

// Group is the cgroup of one container: one directory on cgroup v2, one in each
// hierarchy on v1.
type Group struct {
	Dirs []string // as they would be; each may be absent
	// hierarchies are the names of the hierarchies that Dirs are in; none on
	// cgroup v2.
	hierarchies []string
}

// Path is where linux.cgroupsPath is, from the top of a hierarchy.
func Path(path string, systemd bool) (string, error) {
	if systemd {
		var err error
		if path, err = scopePath(path); err != nil {
			return "", err
		}
	}
	// A path of one step is a top directory that others share.
	if path = filepath.Clean("/" + path); strings.Count(path, "/") < 2 {
		return "", notOfContainer(path)
	}
	return path, nil
}

func notOfContainer(path string) error {
	return fmt.Errorf("cgroup %q is not one of a container: %w", path, errdefs.ErrInternal)
}

// New finds the directories of a path that Path returned.
func New(root, path string) (*Group, error) {
	if path != filepath.Clean(path) || strings.Count(path, "/") < 2 {
		return nil, notOfContainer(path) // whatever was killed in it would be others'
	}
	hierarchies, err := hierarchiesIn(root)
	if err != nil {
		return nil, err
	}
	g := &Group{}
	for _, h := range hierarchies {
		g.Dirs = append(g.Dirs, filepath.Join(h, path))
		if h != root {
			g.hierarchies = append(g.hierarchies, filepath.Base(h))
		}
	}
	return g, nil
}

// limiting are the controllers of cgroup v1 that every runtime puts a container
// into, where the host has them.
var limiting = []string{"blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"}

// Lacking are the hierarchies of these in which the cgroup is gone.
func (g *Group) Lacking() (out []string) {
	for i, name := range g.hierarchies {
		_, err := os.Lstat(g.Dirs[i])
		limits := slices.ContainsFunc(strings.Split(name, ","), func(c string) bool { return slices.Contains(limiting, c) })
		if limits && errors.Is(err, fs.ErrNotExist) {
			out = append(out, name)
		}
	}
	return out
}

// Exists says whether the cgroup is in any hierarchy.
func (g *Group) Exists() bool {
	return slices.ContainsFunc(g.Dirs, func(dir string) bool {
		_, err := os.Lstat(dir)
		return err == nil
	})
}

// unified tells whether the host has cgroup v2 alone.
func unified(root string) bool {
	_, err := os.Stat(filepath.Join(root, "cgroup.controllers"))
	return err == nil
}

// hierarchiesIn lists the top directories of the hierarchies. The mount table
// would tell as well, but it has a line for each container of the host.
func hierarchiesIn(root string) ([]string, error) {
	if unified(root) {
		return []string{root}, nil
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("find the cgroup hierarchies: %w", err)
	}
	var dirs []string
	for _, e := range entries {
		if e.IsDir() { // links such as cpu -> cpu,cpuacct are not
			dirs = append(dirs, filepath.Join(root, e.Name()))
		}
	}
	return dirs, nil
}

// scopePath is the directory of "slice:prefix:name", as systemd nests slices:
// a-b.slice is in a.slice.
func scopePath(path string) (string, error) {
	parts := strings.Split(path, ":")
	if len(parts) != 3 || !strings.HasSuffix(parts[0], ".slice") || parts[2] == "" {
		return "", fmt.Errorf("cgroup path %q is not slice:prefix:name: %w", path, errdefs.ErrInternal)
	}
	var dir, grown string
	if parts[0] != "-.slice" {
		for _, step := range strings.Split(strings.TrimSuffix(parts[0], ".slice"), "-") {
			grown += step
			dir = filepath.Join(dir, grown+".slice")
			grown += "-"
		}
	}
	return "/" + filepath.Join(dir, parts[1]+"-"+parts[2]+".scope"), nil
}

// tree is a cgroup and those below it, parents first.
func tree(dir string) ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // gone in the meantime, or never there
		case err != nil:
			return err
		case e.IsDir():
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs, err
}

// PIDs lists the processes of the container. Each hierarchy is looked at: a
// process may have been moved out of the container's cgroup in some.
func (g *Group) PIDs() ([]int, error) {
	var all []int
	for _, top := range g.Dirs {
		dirs, err := tree(top)
		if err != nil {
			return nil, err
		}
		for _, dir := range dirs {
			found, err := readPIDs(filepath.Join(dir, "cgroup.procs"))
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func readPIDs(path string) ([]int, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var pids []int
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// 0 stands for processes that this PID namespace does not see.
		if pid, err := strconv.Atoi(lines.Text()); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	if errors.Is(lines.Err(), unix.ENODEV) || errors.Is(lines.Err(), unix.EOPNOTSUPP) {
		return pids, nil // removed while it was read, or a threaded cgroup
	}
	return pids, lines.Err()
}

// Signal sends a signal to every process of the container. SIGKILL gets all of
// them, also those that fork as fast as they can.
func (g *Group) Signal(ctx context.Context, sig unix.Signal) error {
	if sig == unix.SIGKILL {
		if done, err := g.killAtOnce(); done || err != nil {
			return err
		}
		thaw, err := g.freeze(ctx)
		if err != nil {
			return err
		}
		defer thaw()
	}
	pids, err := g.PIDs()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("signal process %d of the container: %w", pid, err)
		}
	}
	return nil
}

// killAtOnce kills by cgroup v2's own means, where the kernel has them.
func (g *Group) killAtOnce() (done bool, err error) {
	if len(g.Dirs) != 1 {
		return false, nil
	}
	err = os.WriteFile(filepath.Join(g.Dirs[0], "cgroup.kill"), []byte("1"), 0)
	if errors.Is(err, os.ErrNotExist) {
		_, missing := os.Stat(g.Dirs[0])
		return missing != nil, nil // no cgroup, or a kernel before 5.14
	}
	return err == nil, err
}

// Remove deletes the directories that are left.
func (g *Group) Remove(ctx context.Context) error {
	for pause := time.Millisecond; ; pause *= 2 {
		err := g.tryRemove()
		if err == nil || !errors.Is(err, unix.EBUSY) || pause > 100*time.Millisecond {
			return err
		}
		// Processes that have just died leave their cgroup a little later.
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

func (g *Group) tryRemove() error {
	var failed []error
	for _, top := range g.Dirs {
		dirs, err := tree(top)
		if err != nil {
			failed = append(failed, err)
		}
		for _, dir := range slices.Backward(dirs) {
			if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
				failed = append(failed, fmt.Errorf("remove cgroup %s: %w", dir, err))
			}
		}
	}
	return errors.Join(failed...)
}

// KillRest kills what is left in the cgroup and waits until it is gone.
func (g *Group) KillRest(ctx context.Context) error {
	pids, err := g.PIDs()
	if err != nil || len(pids) == 0 {
		return err
	}
	if err := g.Signal(ctx, unix.SIGKILL); err != nil {
		return err
	}
	return g.awaitEmpty(ctx)
}

// awaitEmpty waits until no process is left. It kills again: a runtime that was
// cut off may have put one in after the signal.
func (g *Group) awaitEmpty(ctx context.Context) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		pids, err := g.PIDs()
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL) // fails if it has ended
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("processes %v were killed and do not end; they may wait for a device or a network file system: %w", pids, errdefs.ErrDeadline)
		case <-time.After(pause):
		}
	}
}
