// Package site says where a benchmark runs, and waits until little else does.
package site

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/test/bench/report"
)

// busy is the load: the mean number of processes that wanted to run in the last minute.
func busy() float64 {
	l, _ := strconv.ParseFloat(first(read("/proc/loadavg"), " "), 64)
	return l
}

// Calm waits until little else runs: what built the benchmark is still in the
// mean. After some time it gives up, and the result says what the load was.
func Calm(ctx context.Context, patience time.Duration, say func(format string, args ...any)) {
	limit := report.Calm * float64(runtime.NumCPU()) / 2
	for begin := time.Now(); busy() > limit && time.Since(begin) < patience; {
		say("the load is %.2f; waiting until it is %.2f, %s at most", busy(), limit, patience)
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Second):
		}
	}
}

// Machine says where this runs. What cannot be found out is empty. disk is a folder
// on the disk that is used.
func Machine(disk string) report.Machine {
	var uts unix.Utsname
	_ = unix.Uname(&uts) // cannot fail with a good pointer
	kb, _ := strconv.Atoi(strings.Fields(field("/proc/meminfo", "MemTotal") + " 0")[0])
	return report.Machine{
		CPU: field("/proc/cpuinfo", "model name"), CPUs: runtime.NumCPU(), MemMB: kb * 1024 / 1e6,
		Kernel: unix.ByteSliceToString(uts.Release[:]), OS: strings.Trim(field("/etc/os-release", "PRETTY_NAME"), `"`),
		Cgroups: cgroups(), Disk: filesystem(disk), Load: busy(),
	}
}

func read(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}

func first(s, sep string) string {
	s, _, _ = strings.Cut(s, sep)
	return s
}

// field is the value of the first "key: value" or "key=value" in a file.
func field(path, key string) string {
	for line := range strings.Lines(read(path)) {
		i := strings.IndexAny(line, ":=")
		if i > 0 && strings.TrimSpace(line[:i]) == key {
			return strings.TrimSpace(line[i+1:])
		}
	}
	return ""
}

func cgroups() string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return "cgroup v2"
	}
	return "cgroup v1"
}

// filesystem is the kind of the file system that a folder is on.
func filesystem(path string) string {
	var s unix.Statfs_t
	if unix.Statfs(path, &s) != nil {
		return ""
	}
	known := map[int64]string{unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay"}
	if name := known[int64(s.Type)]; name != "" {
		return name
	}
	return fmt.Sprintf("file system %#x", s.Type)
}
