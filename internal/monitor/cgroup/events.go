package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fairlead.run/internal/errdefs"
)

// Of returns /proc/PID/cgroup, or nothing if the process is gone.
func Of(pid int) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return ""
	}
	return string(data)
}

// memory finds the hierarchy that accounts for memory.
func memory(all []hierarchy) (hierarchy, error) {
	for _, h := range all {
		if !h.unified && slices.Contains(h.controllers, "memory") {
			return h, nil
		}
	}
	for _, h := range all {
		data, err := os.ReadFile(h.dir("cgroup.controllers"))
		if h.unified && err == nil && slices.Contains(strings.Fields(string(data)), "memory") {
			return h, nil
		}
	}
	return hierarchy{}, fmt.Errorf("find the cgroup hierarchy with the memory controller: %w", errdefs.ErrNotFound)
}

// kills reads how many processes of a cgroup the kernel has killed because
// memory ran out. Of cgroup v2, those of the cgroups below count as well.
func (h hierarchy) kills(dir string) (int, error) {
	file := oomFile
	if h.unified {
		file = eventsFile
	}
	return killsIn(filepath.Join(dir, file))
}

const (
	// eventsFile is the file of cgroup v2 whose every change the kernel announces.
	eventsFile = "memory.events"
	// oomFile is the one of cgroup v1.
	oomFile = "memory.oom_control"
)

// killsIn reads the count of one file.
func killsIn(path string) (int, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return count(string(data), "oom_kill"), nil
}

// count reads one line "key number" of a file of the kernel's.
func count(text, key string) int {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, key+" "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err == nil {
				return n
			}
		}
	}
	return 0
}
