// Package capacity says what a node has and what of it pods may have, and so which
// pods it takes. Reading the machine is the only part with I/O; what is left for
// pods, whether one fits and which ones make room for it are pure functions.
//
// Limits that hold while pods run are of internal/node/cgroups, and what happens
// when the node runs short all the same of internal/node/eviction.
package capacity

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is what there is, before anything is kept back.
type Machine struct {
	CPUs      int
	Memory    int64            // bytes
	Hugepages map[string]int64 // bytes, by resource: "hugepages-2Mi"
	Disk      int64            // bytes of the file system that pods' folders are on
	Pids      int64
}

// Host says where to look.
type Host struct {
	Proc, Sys string // /proc and /sys
	Folder    string // of pods
}

// Read looks at the machine.
func (h Host) Read() (Machine, error) {
	m := Machine{CPUs: h.cpus()}
	var err error
	if m.Memory, err = h.memory(); err != nil {
		return m, fmt.Errorf("read how much memory the machine has: %w", err)
	}
	if m.Hugepages, err = h.hugepages(); err != nil {
		return m, fmt.Errorf("read how many huge pages the machine has: %w", err)
	}
	if m.Pids, err = h.pids(); err != nil {
		return m, fmt.Errorf("read how many processes the machine may have: %w", err)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(h.Folder, &s); err != nil {
		return m, fmt.Errorf("read the size of the file system of %s: %w", h.Folder, err)
	}
	m.Disk = int64(s.Blocks) * s.Bsize
	return m, nil
}

// cpus are those that are online, also if this process may not use all.
func (h Host) cpus() int {
	text, err := os.ReadFile(filepath.Join(h.Sys, "devices/system/cpu/online"))
	if err == nil {
		if n := countCPUs(strings.TrimSpace(string(text))); n > 0 {
			return n
		}
	}
	return runtime.NumCPU()
}

// countCPUs reads a list as "0-3,6". It is 0 for what is no list.
func countCPUs(list string) int {
	n := 0
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, err := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || b < a {
			return 0
		}
		n += b - a + 1
	}
	return n
}

func (h Host) memory() (int64, error) {
	text, err := os.ReadFile(filepath.Join(h.Proc, "meminfo"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			return kib * 1024, err
		}
	}
	return 0, fmt.Errorf("%s has no MemTotal", filepath.Join(h.Proc, "meminfo"))
}

// hugepages has also the sizes of which there are none, as a kernel may be told to
// have some later.
func (h Host) hugepages() (map[string]int64, error) {
	folders, err := filepath.Glob(filepath.Join(h.Sys, "kernel/mm/hugepages/hugepages-*kB"))
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for _, dir := range folders {
		size := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), "hugepages-"), "kB")
		kib, err := strconv.ParseInt(size, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		n, err := number(filepath.Join(dir, "nr_hugepages"))
		if err != nil {
			return nil, err
		}
		out["hugepages-"+binary(kib*1024)] = n * kib * 1024
	}
	return out, nil
}

// binary writes a power of two as quantities have it: 2Mi.
func binary(n int64) string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti"}
	i := 0
	for n >= 1024 && n%1024 == 0 && i < len(units)-1 {
		n, i = n/1024, i+1
	}
	return strconv.FormatInt(n, 10) + units[i]
}

// pids is the smaller of two limits of the kernel.
func (h Host) pids() (int64, error) {
	ids, err := number(filepath.Join(h.Proc, "sys/kernel/pid_max"))
	if err != nil {
		return 0, err
	}
	threads, err := number(filepath.Join(h.Proc, "sys/kernel/threads-max"))
	return min(ids, threads), err
}

func number(file string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return n, nil
}
