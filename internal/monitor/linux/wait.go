package linux

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ended is how a child ended.
type Ended struct {
	PID    int
	Start  uint64 // see Stat; zero if it could not be read
	Code   int    // exit code; 128+Signal after a signal
	Signal int
	At     time.Time // when it was seen
	// Found says that it ended before At, and nobody knows when.
	Found bool `json:",omitempty"`
}

// Of says whether this is the end of the process that had the pid since a time and
// has this start. A start of zero is not compared. Others have had the pid before.
func (e Ended) Of(pid int, start uint64, since time.Time) bool {
	return e.PID == pid && (start == e.Start || start == 0 && !e.At.Before(since))
}

// The values of si_code for SIGCHLD.
const cldExited = 1

// NextEnded returns one child that has ended, and leaves it a zombie: who dies
// between recording it and calling Reap has lost nothing, because whoever
// inherits the zombie sees it again. False when no child has ended.
func NextEnded() (Ended, bool) {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return Ended{}, false
		}
		break
	}
	// The union of siginfo_t starts at the first multiple of a pointer's size
	// after three integers: si_pid, si_uid, si_status.
	offset := (12 + unsafe.Sizeof(uintptr(0)) - 1) &^ (unsafe.Sizeof(uintptr(0)) - 1)
	fields := (*[3]int32)(unsafe.Add(unsafe.Pointer(&info), offset))
	e := Ended{PID: int(fields[0]), At: time.Now()}
	if e.PID == 0 {
		return Ended{}, false
	}
	if info.Code == cldExited {
		e.Code = int(fields[2])
	} else {
		e.Signal = int(fields[2])
		e.Code = 128 + e.Signal
	}
	if s, err := ReadStat(e.PID); err == nil {
		e.Start = s.Start
	}
	return e, true
}

// Reap frees the zombie that NextEnded returned.
func Reap(pid int) {
	for {
		_, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
		if err != unix.EINTR {
			return
		}
	}
}
