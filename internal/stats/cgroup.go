package stats

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"fairlead.run/internal/pod"
)

// cgroups are the hierarchies of this host. On cgroup v2 all are the same.
type cgroups struct {
	unified           bool
	systemd           bool
	cpu, memory, pids string
	quota, io, huge   string   // as those, of the controllers cpu, blkio and hugetlb
	pressure          string   // the hierarchy of cgroup v2, where the kernel measures pressure
	pageSizes         []string // of huge pages, as in the names of files: "2MB"
	devices           *devices
}

// findCgroups looks at what is mounted. v1 hierarchies have a folder, or a link
// to one, for each controller.
func findCgroups(root string, systemd bool) cgroups {
	if exists(filepath.Join(root, "cgroup.controllers")) {
		return cgroups{
			unified: true, systemd: systemd, cpu: root, memory: root, pids: root, quota: root, io: root, huge: root,
			pressure: withPressure(root), pageSizes: findPageSizes(hugePages), devices: &devices{},
		}
	}
	return cgroups{
		systemd:   systemd,
		cpu:       filepath.Join(root, "cpuacct"),
		memory:    filepath.Join(root, "memory"),
		pids:      filepath.Join(root, "pids"),
		quota:     filepath.Join(root, "cpu"),
		io:        filepath.Join(root, "blkio"),
		huge:      filepath.Join(root, "hugetlb"),
		pressure:  withPressure(filepath.Join(root, "unified")),
		pageSizes: findPageSizes(hugePages), devices: &devices{},
	}
}

// withPressure is the hierarchy, or "" if the kernel does not measure pressure.
func withPressure(root string) string {
	if exists(filepath.Join(root, "cpu.pressure")) {
		return root
	}
	return ""
}

// hugePages has a folder such as "hugepages-2048kB" for each size.
const hugePages = "/sys/kernel/mm/hugepages"

func findPageSizes(dir string) []string {
	found, _ := os.ReadDir(dir) // without any the kernel has no such folder
	var out []string
	for _, e := range found {
		kb, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(e.Name(), "hugepages-"), "kB"), 10, 64)
		if err != nil {
			continue
		}
		switch {
		case kb >= 1<<20:
			out = append(out, fmt.Sprintf("%dGB", kb>>20))
		case kb >= 1<<10:
			out = append(out, fmt.Sprintf("%dMB", kb>>10))
		default:
			out = append(out, fmt.Sprintf("%dKB", kb))
		}
	}
	return out
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// seen is what the files of one cgroup said. A part without a file is nil.
type seen struct {
	cpu       *pod.CPUUsage
	memory    *pod.MemoryUsage
	swap      *pod.SwapUsage
	io        *pod.IOUsage
	processes *pod.ProcessUsage
}

// look reads the files of a cgroup.
func (c *cgroups) look(path string) (seen, error) {
	f := openFiles()
	defer f.release()
	s := seen{cpu: c.lookCPU(f, path), processes: c.lookProcesses(f, path)}
	s.memory, s.swap = c.lookMemory(f, path)
	// What ends while it is read has some files and not others.
	if f.missing && !exists(c.cpu+path) && !exists(c.memory+path) {
		return seen{}, gone(path)
	}
	c.lookPressure(f, path, &s)
	return s, nil
}

func (c *cgroups) lookCPU(f *files, path string) *pod.CPUUsage {
	u := &pod.CPUUsage{At: time.Now()}
	if !c.unified {
		u.Total = f.number(c.cpu+path, "cpuacct.usage")
	} else if us := f.keys(c.cpu+path, "cpu.stat", "usage_usec")[0]; us != nil {
		u.Total = new(uint64)
		*u.Total = *us * uint64(time.Microsecond)
	}
	if u.Total == nil {
		return nil
	}
	return u
}

func (c *cgroups) lookProcesses(f *files, path string) *pod.ProcessUsage {
	at := time.Now()
	if n := f.number(c.pids+path, "pids.current"); n != nil {
		return &pod.ProcessUsage{At: at, Count: *n}
	}
	return nil
}

// lookPressure adds what only the hierarchy of cgroup v2 tells. Beside v1 not
// every runtime makes a cgroup there.
func (c *cgroups) lookPressure(f *files, path string, s *seen) {
	if c.pressure == "" {
		return
	}
	if s.cpu != nil {
		s.cpu.Pressure = f.pressure(c.pressure+path, "cpu.pressure")
	}
	if s.memory != nil {
		s.memory.Pressure = f.pressure(c.pressure+path, "memory.pressure")
	}
	at := time.Now()
	if p := f.pressure(c.pressure+path, "io.pressure"); p != nil {
		s.io = &pod.IOUsage{At: at, Pressure: p}
	}
}
