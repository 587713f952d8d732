// Package filelock gets a database back whose lock a dead process still has.
//
// A process that is killed while one of its threads waits in the kernel for a
// dead file server stays until that wait ends, which may be never. It will not
// run again, but what it has mapped stays open, and so do the locks on that. A
// database in such a file could not be opened before the next boot.
//
// It breaks no lock that was taken by a process which can still run.
package filelock

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/atomicfile"
)

// Reclaim puts a copy of the file in its place if everybody who holds a
// flock(2) lock on it is dead: the copy has no locks. It says whether it did.
// Any other file, locked or not, missing or not, is left alone. The caller makes
// sure that nobody else does the same at this moment: the second copy would take
// the place of what the first caller has opened by then.
func Reclaim(path string) (bool, error) {
	if free, err := heldByDead(path); !free || err != nil {
		return false, err
	}
	if err := replace(path); err != nil {
		return false, fmt.Errorf("reclaim %s from a dead process: %w", path, err)
	}
	return true, nil
}

// replace puts a copy in the place of a file.
func replace(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return atomicfile.WriteSync(path, content, st.Mode().Perm())
}

// heldByDead says whether the file is locked, by dead processes alone.
func heldByDead(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for locks of the dead: %w", err)
	}
	defer func() { _ = f.Close() }()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		return false, nil // closing gives it back
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false, fmt.Errorf("look for locks on %s: %w", f.Name(), err)
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return false, fmt.Errorf("look for locks on %s: %w", f.Name(), err)
	}
	defer func() { _ = locks.Close() }()
	// "1: FLOCK  ADVISORY  WRITE 708 00:19:1234 0 EOF"; with "->" after the
	// number, one who waits for it.
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	held := false
	lines := bufio.NewScanner(locks)
	for lines.Scan() {
		field := strings.Fields(lines.Text())
		if len(field) < 6 || field[1] != "FLOCK" || field[5] != file {
			continue
		}
		pid, err := strconv.Atoi(field[4])
		if err != nil || !dead(pid) {
			return false, nil
		}
		held = true
	}
	return held, lines.Err()
}

// dead says whether a process will never run again: each of its threads is a
// zombie, or SIGKILL waits for it to come back from the kernel.
func dead(pid int) bool {
	if pid <= 0 { // of another pid namespace
		return false
	}
	// Those that are gone meanwhile took their locks along: the next attempt succeeds.
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, t := range threads {
		status, err := os.ReadFile(t)
		if err != nil || !killed(string(status)) {
			return false
		}
	}
	return true
}

// killed reads the status of a thread.
func killed(status string) bool {
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch key {
		case "State":
			if strings.HasPrefix(value, "Z") || strings.HasPrefix(value, "X") {
				return true
			}
		case "SigPnd", "ShdPnd":
			pending, err := strconv.ParseUint(value, 16, 64)
			if err == nil && pending&(1<<(uint(unix.SIGKILL)-1)) != 0 {
				return true
			}
		}
	}
	return false
}
