package eviction

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Observer reads what is left from the kernel.
type Observer struct {
	Proc string // /proc
	// Pods is the folder of the cgroup of all pods that shows their memory, and
	// Memory what they may have together. Without a limit there is no signal for it.
	Pods   string
	Memory int64
	// Pids is how many processes the node may have.
	Pids int64
	// Nodefs and Imagefs are folders on those disks. An empty one is not observed.
	Nodefs, Imagefs string
}

// Observe says what it could read; the error names the rest.
func (o Observer) Observe() (Observations, error) {
	out := Observations{}
	errs := []error{o.node(out), o.pods(out), o.processes(out)}
	errs = append(errs, disk(out, o.Nodefs, NodefsAvailable, NodefsInodesFree), disk(out, o.Imagefs, ImagefsAvailable, ImagefsInodesFree))
	return out, errors.Join(errs...)
}

// node is the memory of the machine that is free, or holds files that were not
// used lately.
func (o Observer) node(out Observations) error {
	file := filepath.Join(o.Proc, "meminfo")
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("observe memory: %w", err)
	}
	has := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		if f := strings.Fields(rest); len(f) == 2 && f[1] == "kB" {
			if n, err := strconv.ParseInt(f[0], 10, 64); err == nil {
				has[name] = n * 1024
			}
		}
	}
	for _, name := range []string{"MemTotal", "MemFree", "Inactive(file)"} {
		if _, ok := has[name]; !ok {
			return fmt.Errorf("observe memory: %s has no %s", file, name)
		}
	}
	out[MemoryAvailable] = Observation{has["MemFree"] + has["Inactive(file)"], has["MemTotal"]}
	return nil
}

// pods is what all pods together have not used of what they may have.
func (o Observer) pods(out Observations) error {
	if o.Memory <= 0 || o.Pods == "" {
		return nil
	}
	use, inactive := "memory.usage_in_bytes", "total_inactive_file" // v1
	if _, err := os.Stat(filepath.Join(o.Pods, "memory.current")); err == nil {
		use, inactive = "memory.current", "inactive_file"
	}
	text, err := os.ReadFile(filepath.Join(o.Pods, use))
	if err != nil {
		return fmt.Errorf("observe the memory of all pods: %w", err)
	}
	used, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return fmt.Errorf("observe the memory of all pods: %w", err)
	}
	stat, err := os.ReadFile(filepath.Join(o.Pods, "memory.stat"))
	if err != nil {
		return fmt.Errorf("observe the memory of all pods: %w", err)
	}
	for line := range strings.Lines(string(stat)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == inactive {
			n, _ := strconv.ParseInt(f[1], 10, 64) // without it more counts as used
			used = max(used-n, 0)
		}
	}
	out[AllocatableMemory] = Observation{o.Memory - used, o.Memory}
	return nil
}

func (o Observer) processes(out Observations) error {
	file := filepath.Join(o.Proc, "loadavg")
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("observe processes: %w", err)
	}
	f := strings.Fields(string(text)) // 0.20 0.18 0.12 1/80 11206
	if len(f) < 4 {
		return fmt.Errorf("observe processes: %s says %q", file, text)
	}
	_, all, _ := strings.Cut(f[3], "/")
	n, err := strconv.ParseInt(all, 10, 64)
	if err != nil {
		return fmt.Errorf("observe processes: %s says %q", file, text)
	}
	out[PIDAvailable] = Observation{max(o.Pids-n, 0), o.Pids}
	return nil
}

// disk has no inodes where the file system counts none.
func disk(out Observations, dir string, space, inodes Signal) error {
	if dir == "" {
		return nil
	}
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("observe the file system of %s: %w", dir, err)
	}
	out[space] = Observation{int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize}
	if s.Files > 0 {
		out[inodes] = Observation{int64(s.Ffree), int64(s.Files)}
	}
	return nil
}

// LayoutOf finds out which of three folders are on disks of their own.
func LayoutOf(nodefs, imagefs, containerfs string) (Layout, error) {
	var ids [3]uint64
	for i, dir := range []string{nodefs, imagefs, containerfs} {
		var s unix.Stat_t
		if err := unix.Stat(dir, &s); err != nil {
			return OneDisk, fmt.Errorf("find the disk of %s: %w", dir, err)
		}
		ids[i] = s.Dev
	}
	switch {
	case ids[0] == ids[1] && ids[1] == ids[2]:
		return OneDisk, nil
	case ids[1] == ids[2]:
		return ImagesApart, nil
	case ids[0] == ids[2]:
		return OnlyImagesApart, nil
	}
	return OneDisk, fmt.Errorf("%s, %s and %s are on different disks; containers' layers have to be on that of pods or on that of images", nodefs, imagefs, containerfs)
}
