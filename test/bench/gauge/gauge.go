package gauge

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/test/bench/arena"
)

// PauseProgram is the name of the program that holds a pod's namespaces.
const PauseProgram = "pause"

// Daemon says which processes belong to a daemon.
type Daemon struct {
	Pid int
	// Cgroup is the parent of its pods' cgroups.
	Cgroup string
}

// Processes are the pids of the daemon, of the helpers that share its mounts
// (shims, monitors), and of its pods' pause processes.
func (d Daemon) Processes() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && (arena.SameMounts(pid, d.Pid) || d.isPause(pid)) {
			out = append(out, pid)
		}
	}
	return out, nil
}

func (d Daemon) isPause(pid int) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	comm, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil || strings.TrimSpace(string(comm)) != PauseProgram {
		return false
	}
	cgroups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	return err == nil && bytes.Contains(cgroups, []byte(":"+d.Cgroup+"/"))
}

// Memory is the proportional share of memory of all processes, in MB (10^6
// bytes): what several share counts for each with its part.
func (d Daemon) Memory() (float64, error) { return d.sum("Pss:") }

// Resident is the resident memory of all processes, in MB: what several share counts
// for each of them in full.
func (d Daemon) Resident() (float64, error) { return d.sum("Rss:") }

// sum adds up what the kernel says of all processes.
func (d Daemon) sum(what string) (float64, error) {
	pids, err := d.Processes()
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, pid := range pids {
		kb, err := kilobytes(pid, what)
		if err != nil && !gone(err) {
			return 0, err
		}
		sum += kb * 1024 / 1e6
	}
	return sum, nil
}

func kilobytes(pid int, what string) (kb float64, err error) {
	path := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read the memory of a process: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, what); ok {
			return strconv.ParseFloat(strings.Fields(rest)[0], 64)
		}
	}
	return 0, fmt.Errorf("%s has no line %s %w", path, what, fs.ErrInvalid)
}

// CPU is the time that all processes have computed so far, threads that have ended
// included. A process that ends takes its time away: it is for processes at rest.
func (d Daemon) CPU() (time.Duration, error) {
	pids, err := d.Processes()
	if err != nil {
		return 0, err
	}
	return timeOf(pids)
}

func timeOf(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		ran, err := ownTime(pid)
		switch {
		case err == nil:
			sum += ran
		case !ended(pid):
			return 0, err
		}
	}
	return sum, nil
}

// ended says that there is no process of that id any more: its clock then is an
// invalid one.
func ended(pid int) bool {
	return errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// gone says that a process ended while it was looked at. Reading from a process
// that has just ended fails with ESRCH.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || strings.HasSuffix(err.Error(), "no such process")
}
