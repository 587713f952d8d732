package hostprep

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hierarchy is a cgroup hierarchy that this host has mounted.
type hierarchy struct {
	dir    string // its mount point
	fstype string // cgroup or cgroup2
	// named is by what a mount of cgroup v1 finds it: controllers, or a name.
	named string
}

// hierarchies lists them.
func hierarchies() ([]hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("read the own cgroups: %w", err)
	}
	var list []hierarchy
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 4 || f[1] != root && filepath.Dir(f[1]) != root {
			continue
		}
		h := hierarchy{dir: f[1], fstype: f[2]}
		again := slices.ContainsFunc(list, func(other hierarchy) bool { return other.dir == h.dir })
		if again || h.fstype != "cgroup" && h.fstype != "cgroup2" {
			continue
		}
		if h.fstype == "cgroup" {
			h.named = namedBy(string(own), strings.Split(f[3], ","))
		}
		list = append(list, h)
	}
	return list, nil
}

// namedBy finds the name of a hierarchy of cgroup v1 among its mount's options.
func namedBy(own string, options []string) string {
	for line := range strings.Lines(own) {
		f := strings.SplitN(line, ":", 3)
		if len(f) < 3 || f[1] == "" {
			continue
		}
		other := func(word string) bool { return !slices.Contains(options, word) }
		if !slices.ContainsFunc(strings.Split(f[1], ","), other) {
			return f[1]
		}
	}
	return ""
}

// makeCgroup makes a cgroup at the top of each hierarchy, in which processes can
// be. remove takes them away again, with those that were made below, once no
// process is in them.
func makeCgroup(name string) (remove func() error, err error) {
	list, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var made []string
	remove = func() error {
		var failed []error
		for _, dir := range made {
			failed = append(failed, removeCgroup(dir))
		}
		return errors.Join(failed...)
	}
	for _, h := range list {
		dir := filepath.Join(h.dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, errors.Join(fmt.Errorf("make a cgroup: %w", err), remove())
		}
		made = append(made, dir)
		if err := inheritCPUs(h.dir, dir); err != nil {
			return nil, errors.Join(err, remove())
		}
	}
	return remove, nil
}

// inheritCPUs gives a new cgroup v1 what it needs to have before it takes
// processes.
func inheritCPUs(from, to string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		have, err := os.ReadFile(filepath.Join(to, name))
		if errors.Is(err, fs.ErrNotExist) || strings.TrimSpace(string(have)) != "" {
			continue
		}
		above, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the root of cgroup v2
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), above, 0)
		}
		if err != nil {
			return fmt.Errorf("prepare a cgroup: %w", err)
		}
	}
	return nil
}

// removeCgroup removes a cgroup and those below. Processes that have just died
// leave theirs a little later.
func removeCgroup(dir string) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		removeEmpty(dir)
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove the cgroup %s: %w", dir, err)
		}
	}
}

// join moves this process to the cgroups of that name.
func join(list []hierarchy, name string) error {
	for _, h := range list {
		if err := os.WriteFile(filepath.Join(h.dir, name, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("enter a cgroup: %w", err)
		}
	}
	return nil
}

// mountHierarchies mounts them anew, as they are seen from the cgroup namespace
// of this process.
func mountHierarchies(list []hierarchy) error {
	if len(list) == 0 || list[0].dir != root {
		if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mount a tmpfs on %s: %w", root, err)
		}
	}
	for _, h := range list {
		if err := os.MkdirAll(h.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("cgroup", h.dir, h.fstype, 0, h.named); err != nil {
			return fmt.Errorf("mount %s on %s: %w", h.fstype, h.dir, err)
		}
		for c := range strings.SplitSeq(h.named, ",") {
			link := filepath.Join(root, c)
			if err := os.Symlink(filepath.Base(h.dir), link); h.named != c && err != nil {
				return err
			}
		}
	}
	return nil
}
