package cgroup

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// hierarchy is one mounted cgroup hierarchy.
type hierarchy struct {
	unified     bool     // cgroup v2
	controllers []string // of v1: "memory", "name=systemd"
	root        string   // the cgroup at the mount point
	mountPoint  string
}

// hierarchies reads the mounted hierarchies.
func hierarchies() ([]hierarchy, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(data), nil
}

// parseMounts reads the cgroup mounts out of a mountinfo file.
func parseMounts(data []byte) []hierarchy {
	var found []hierarchy
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		front, back, ok := strings.Cut(lines.Text(), " - ")
		before, after := strings.Fields(front), strings.Fields(back)
		if !ok || len(before) < 5 || len(after) < 3 {
			continue
		}
		h := hierarchy{root: before[3], mountPoint: before[4]}
		switch after[0] {
		case "cgroup2":
			h.unified = true
		case "cgroup":
			h.controllers = strings.Split(after[2], ",")
		default:
			continue
		}
		found = append(found, h)
	}
	return found
}

// of returns where in the hierarchy a process is, given its /proc/PID/cgroup;
// empty if it is not to be seen here.
func (h hierarchy) of(cgroups string) string {
	for line := range strings.Lines(cgroups) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		if !h.isNamed(parts[0], parts[1]) {
			continue
		}
		path := parts[2]
		if h.root != "/" {
			rest, ok := strings.CutPrefix(path, h.root)
			if !ok {
				return ""
			}
			path = "/" + strings.TrimPrefix(rest, "/")
		}
		return path
	}
	return ""
}

func (h hierarchy) isNamed(id, controllers string) bool {
	if h.unified {
		return id == "0" && controllers == ""
	}
	for c := range strings.SplitSeq(controllers, ",") {
		if c != "" && slices.Contains(h.controllers, c) {
			return true
		}
	}
	return false
}

func (h hierarchy) dir(path string) string { return filepath.Join(h.mountPoint, path) }
