package linux

import (
	"os"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// BecomeSubreaper makes the process the parent of every orphan among its
// descendants.
func BecomeSubreaper() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// KeepOnExec lets fd survive an exec of the own process.
func KeepOnExec(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
	return os.NewSyscallError("fcntl", err)
}

// CloseOnExec undoes KeepOnExec.
func CloseOnExec(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC)
	return os.NewSyscallError("fcntl", err)
}

// OOMScore reads the own oom_score_adj.
func OOMScore() (int, error) {
	data, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}

// SetOOMScore sets the oom_score_adj of a process; zero means the own.
func SetOOMScore(pid, score int) error {
	who := "self"
	if pid != 0 {
		who = strconv.Itoa(pid)
	}
	f, err := os.OpenFile("/proc/"+who+"/oom_score_adj", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.Itoa(score))
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// KillGroup sends SIGKILL to the process group of a session that the caller
// started and has not reaped.
func KillGroup(leader int) error { return syscall.Kill(-leader, syscall.SIGKILL) }

// LiveHeap is what of this process's memory was in use after the last collection
// of garbage, in bytes.
func LiveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
