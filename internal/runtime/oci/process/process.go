// Package process tells whether exactly the process that is on record lives, and
// signals it. A pid alone may be another's by now.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

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
