package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// HybridControllers are the controllers that the cgroup v2 hierarchy of a host
// with cgroup v1 still has. There are none on other hosts.
func HybridControllers(root string) string {
	data, err := os.ReadFile(filepath.Join(root, "unified", "cgroup.controllers"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// HybridRemedy says what to do about HybridControllers, or "".
func HybridRemedy(root string) string {
	controllers := strings.Fields(HybridControllers(root))
	if len(controllers) == 0 {
		return ""
	}
	var commands []string
	for _, c := range controllers {
		dir := filepath.Join(root, c)
		commands = append(commands, fmt.Sprintf("mkdir -p %s && mount -t cgroup -o %s cgroup %s", dir, c, dir))
	}
	return fmt.Sprintf("this host has cgroup v1, but its cgroup v2 hierarchy %s still has the controllers %s, which crun does not take; mount them as cgroup v1 hierarchies (%s)",
		filepath.Join(root, "unified"), strings.Join(controllers, " "), strings.Join(commands, "; "))
}
