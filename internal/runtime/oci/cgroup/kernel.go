package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// KernelMemory is what the kernel keeps for the processes of the cgroup and
// those below, such as page tables and stacks, in bytes. It is zero where the
// kernel does not tell.
func (g *Group) KernelMemory() int64 {
	for _, dir := range g.Dirs {
		if data, err := os.ReadFile(filepath.Join(dir, "memory.kmem.usage_in_bytes")); err == nil {
			n, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64) // the kernel writes a number
			return n
		}
		data, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "kernel" {
				n, _ := strconv.ParseInt(fields[1], 10, 64)
				return n
			}
		}
	}
	return 0
}
