// Package process tells whether exactly the process that is on record lives, and
// signals it. A pid alone may be another's by now.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/pod"
)

// Alive says whether exactly that process lives. A zombie does not.
func Alive(p *pod.RunningProcess) (bool, error) {
	state, start, err := stat(p.PID)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return start == p.StartTime && state != 'Z' && state != 'X', nil
}

// stat returns the state of a process and its start time, fields 3 and 22 of
// /proc/PID/stat.
func stat(pid int) (state byte, start uint64, err error) {
	path := "/proc/" + strconv.Itoa(pid) + "/stat"
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}
	// The second field is the name in parentheses, which may contain anything.
	end := bytes.LastIndexByte(data, ')')
	fields := bytes.Fields(data[end+1:])
	if end < 0 || len(fields) < 20 {
		return 0, 0, fmt.Errorf("read %s: it has %d fields after the name", path, len(fields))
	}
	start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("read %s: start time: %w", path, err)
	}
	return fields[0][0], start, nil
}

// Memory is the share of a process in the memory of the machine, in bytes; zero
// for one that is gone.
func Memory(pid int) int64 { return smaps(pid, "Pss:") }

// OwnMemory is that of Memory which no file is behind: what a process has asked
// for, and not its program, whose share changes with who else runs it.
func OwnMemory(pid int) int64 { return smaps(pid, "Pss_Anon:") }

func smaps(pid int, key string) int64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(data) {
		if fields := bytes.Fields(line); len(fields) == 3 && string(fields[0]) == key {
			kib, _ := strconv.ParseInt(string(fields[1]), 10, 64) // the kernel writes a number
			return kib << 10
		}
	}
	return 0
}

// Signal sends a signal to exactly that process. One that is gone needs none.
func Signal(p *pod.RunningProcess, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(fd)
	// Only now is it certain that the pid that is looked at is the one held.
	if lives, err := Alive(p); err != nil || !lives {
		return err
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); !errors.Is(err, unix.ESRCH) {
		return os.NewSyscallError("pidfd_send_signal", err)
	}
	return nil
}

// Time is the processor time that the threads of a process have had; zero for
// one that is gone.
func Time(pid int) time.Duration {
	var sum time.Duration
	threads, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/schedstat") // the pattern is a good one
	for _, file := range threads {
		data, err := os.ReadFile(file)
		if fields := bytes.Fields(data); err == nil && len(fields) > 0 {
			ns, _ := strconv.ParseInt(string(fields[0]), 10, 64) // the kernel writes a number
			sum += time.Duration(ns)
		}
	}
	return sum
}
