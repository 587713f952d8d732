package stats

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Looking at descriptors takes about a microsecond for each. A container that
// has more processes or descriptors than this tells nothing of descriptors.
const (
	maxLookedProcesses   = 1024
	maxLookedDescriptors = 16 << 10
)

// maxBelow bounds how deep cgroups of a container's own making are looked for.
const maxBelow = 8

func (c *cgroups) processMetrics(t *target) {
	pids, ok := c.processesIn(t.files, c.pids+t.path, maxBelow)
	if ok {
		t.set(processes, uint64(len(pids)))
		if of, ok := lookDescriptors(pids); ok {
			t.set(descriptors, of.open)
			t.set(sockets, of.sockets)
		}
	}
	if u := t.seen.processes; u != nil {
		t.set(threads, u.Count)
		// "max" is no number.
		most := uint64(0)
		if n := t.optional(c.pids+t.path, "pids.max"); n != nil {
			most = *n
		}
		t.set(threadsMax, most)
	}
	// The number of a process that has ended may be another's.
	if p := t.container.Process; p != nil && contains(pids, p.Inside()) {
		t.put(ulimits, openFilesLimit(t.files, p.Inside()), "max_open_files")
	}
}

func contains(pids []int, pid int) bool {
	for _, p := range pids {
		if p == pid {
			return true
		}
	}
	return false
}

// processesIn lists the processes of a cgroup and of those below it: a container
// may make some, and a runtime that works through systemd does.
func (c *cgroups) processesIn(f *files, dir string, below int) (pids []int, ok bool) {
	text := f.readAll(dir, "cgroup.procs")
	if text == nil {
		return nil, false
	}
	for line := range bytes.Lines(text) {
		if pid, err := strconv.Atoi(string(bytes.TrimSpace(line))); err == nil {
			pids = append(pids, pid)
		}
	}
	// A folder has two links, and one more for each that is in it.
	var st unix.Stat_t
	if below == 0 || unix.Stat(dir, &st) != nil || st.Nlink <= 2 {
		return pids, true
	}
	all, _ := os.ReadDir(dir)
	for _, e := range all {
		if e.IsDir() {
			more, _ := c.processesIn(f, dir+"/"+e.Name(), below-1)
			pids = append(pids, more...)
		}
	}
	return pids, true
}

type descriptorCount struct{ open, sockets uint64 }

// lookDescriptors counts those of processes. One that ends meanwhile has none.
func lookDescriptors(pids []int) (n descriptorCount, ok bool) {
	if len(pids) > maxLookedProcesses {
		return n, false
	}
	names, target := make([]byte, 4096), make([]byte, len("socket:"))
	for _, pid := range pids {
		if !n.add("/proc/"+strconv.Itoa(pid)+"/fd", names, target) {
			return n, false
		}
	}
	return n, true
}

// add counts what is in a folder of descriptors. It says no to too many.
func (n *descriptorCount) add(dir string, names, target []byte) bool {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer func() { _ = unix.Close(fd) }()
	var entries []string
	for {
		got, err := unix.ReadDirent(fd, names)
		if err != nil || got <= 0 {
			return true
		}
		_, _, entries = unix.ParseDirent(names[:got], -1, entries[:0])
		for _, name := range entries {
			if n.open++; n.open > maxLookedDescriptors {
				return false
			}
			if k, err := unix.Readlinkat(fd, name, target); err == nil && string(target[:k]) == "socket:" {
				n.sockets++
			}
		}
	}
}

// openFilesLimit is the soft limit of descriptors, or nil without one.
func openFilesLimit(f *files, pid int) *uint64 {
	for line := range bytes.Lines(f.readAll("/proc/"+strconv.Itoa(pid), "limits")) {
		if rest, ok := bytes.CutPrefix(line, []byte("Max open files ")); ok {
			fields := bytes.Fields(rest)
			if len(fields) == 0 {
				return nil
			}
			return number(fields[0])
		}
	}
	return nil
}
