package cgroup

import (
	"os"
	"strconv"
	"strings"
)

// Of returns /proc/PID/cgroup, or nothing if the process is gone.
func Of(pid int) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return ""
	}
	return string(data)
}

// OOMKilled says whether the kernel has killed a process of the memory cgroup
// that cgroups (see Of) names. A group that is gone, or is the root, says no.
func OOMKilled(cgroups string) bool {
	all, err := hierarchies()
	if err != nil {
		return false
	}
	for _, h := range all {
		// A process that was ending when it was looked at shows the root.
		path := h.of(cgroups)
		if path == "" || path == "/" {
			continue
		}
		for _, file := range []string{"memory.events", "memory.oom_control"} {
			data, err := os.ReadFile(h.dir(path) + "/" + file)
			if err == nil && count(string(data), "oom_kill") > 0 {
				return true
			}
		}
	}
	return false
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
