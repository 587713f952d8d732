package limits

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Host is what can be limited on this host, as it was observed.
type Host struct {
	Unified bool // cgroup v2 holds every controller
	Swap    bool // the memory controller accounts swap
}

// Observe looks at the host. A thing that cannot be observed is taken to be missing.
func Observe() Host {
	var st unix.Statfs_t
	unified := unix.Statfs("/sys/fs/cgroup", &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
	return Host{Unified: unified, Swap: accountsSwap(unified)}
}

// accountsSwap looks for a file that only exists with swap accounting. The root
// of cgroup v2 never has it, so a cgroup below it is looked at.
func accountsSwap(unified bool) bool {
	if !unified {
		return exists("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes")
	}
	found, err := filepath.Glob("/sys/fs/cgroup/*/memory.swap.max")
	return err == nil && len(found) > 0
}

// HugeTLB says whether the controller is there. It is asked for each time,
// because on cgroup v1 it comes and goes with a mount.
func (h Host) HugeTLB() bool {
	if !h.Unified {
		return exists("/sys/fs/cgroup/hugetlb/cgroup.procs")
	}
	b, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	return err == nil && strings.Contains(" "+strings.TrimSpace(string(b))+" ", " hugetlb ")
}

// PageSizes are the sizes of huge pages that this kernel has, as the OCI
// spec and the CRI write them: "2MB", "1GB".
func PageSizes() []string {
	const prefix = "/sys/kernel/mm/hugepages/hugepages-"
	found, _ := filepath.Glob(prefix + "*kB") // the pattern is sound
	var out []string
	for _, f := range found {
		kb, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(f, prefix), "kB"))
		switch {
		case err != nil:
		case kb%(1<<20) == 0:
			out = append(out, fmt.Sprintf("%dGB", kb>>20))
		case kb%(1<<10) == 0:
			out = append(out, fmt.Sprintf("%dMB", kb>>10))
		default:
			out = append(out, fmt.Sprintf("%dKB", kb))
		}
	}
	return out
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return !errors.Is(err, fs.ErrNotExist)
}
