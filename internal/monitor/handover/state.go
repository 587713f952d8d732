package handover

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/monitor/linux"
)

// State is what a process gets from its predecessor in the same pid. An inner
// one gets it in case that the outer one is dead by then.
type State struct {
	// Held maps keys to descriptors.
	Held map[string]int `json:"held"`
	// Lock is the locked file of the state directory.
	Lock int `json:"lock"`
	// Control is the connection to the living inner process, and Inner its pid;
	// both are zero when there is none because the sender was it.
	Control int `json:"control,omitempty"`
	Inner   int `json:"inner,omitempty"`
	// Score is the oom_score_adj that the monitor had before it lowered its
	// own, empty if it did not.
	Score string `json:"score,omitempty"`
	// Ready is the pipe of a starter that still waits; zero means none.
	Ready int `json:"ready,omitempty"`
}

// Pack writes the state to a descriptor that survives an exec, marks all that
// it names to survive too, and returns its number. The caller keeps reachable
// what owns them until the exec: the collector closes a file that is not.
func (s *State) Pack() (fd int, err error) {
	if fd, err = unix.MemfdCreate("fairlead-monitor", 0); err != nil {
		return -1, os.NewSyscallError("memfd_create", err)
	}
	defer func() {
		if err != nil {
			s.Unpacked(fd)
			fd = -1
		}
	}()
	// One that was closed must not cost the others. Its number may be taken again.
	for key, held := range s.Held {
		if held == fd || linux.KeepOnExec(held) != nil {
			delete(s.Held, key)
		}
	}
	for _, kept := range s.own() {
		if err := linux.KeepOnExec(kept); err != nil {
			return fd, fmt.Errorf("keep descriptor %d: %w", kept, err)
		}
	}
	data, err := json.Marshal(s)
	if err != nil {
		return fd, fmt.Errorf("encode state to hand over: %w", err)
	}
	if _, err := unix.Pwrite(fd, data, 0); err != nil {
		return fd, fmt.Errorf("write state to hand over: %w", err)
	}
	return fd, nil
}

// Unpacked undoes Pack when the exec has failed: what is started from here on
// inherits nothing.
func (s *State) Unpacked(fd int) {
	_ = unix.Close(fd)
	for _, kept := range s.descriptors() {
		_ = linux.CloseOnExec(kept) // fails only for one that is closed
	}
}

// Unpack reads what Pack wrote and closes the descriptor. Nothing of it
// survives a later exec unasked.
func Unpack(fd int) (*State, error) {
	f := os.NewFile(uintptr(fd), "handover")
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("read state handed over: %w", err)
	}
	s := &State{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("decode state handed over: %w", err)
	}
	// One that was closed on the way must not cost the others.
	for key, kept := range s.Held {
		if linux.CloseOnExec(kept) != nil {
			delete(s.Held, key)
		}
	}
	for _, kept := range s.own() {
		if err := linux.CloseOnExec(kept); err != nil {
			return nil, fmt.Errorf("take over descriptor %d: %w", kept, err)
		}
	}
	return s, nil
}

func (s *State) descriptors() []int {
	return slices.AppendSeq(s.own(), maps.Values(s.Held))
}

// own are those without which the successor could not go on.
func (s *State) own() []int {
	return slices.DeleteFunc([]int{s.Lock, s.Control, s.Ready}, func(fd int) bool { return fd <= 0 })
}

// The flags by which a process is told what it is; users do not set them.
const (
	FlagRole     = "role" // "outer" (default) or "inner"
	FlagState    = "state"
	FlagBinary   = "binary"
	FlagHandover = "handover-fd"
	FlagControl  = "control-fd"
	FlagLock     = "lock-fd"
	FlagReady    = "ready-fd"
	FlagScore    = "oom-score" // for runtime commands
	FlagCgroup   = "cgroup"
	RoleInner    = "inner"
	RoleOuter    = "outer"
)

// Arg formats a flag.
func Arg(name, value string) string { return "--" + name + "=" + value }

// ArgFD formats a flag that names a descriptor.
func ArgFD(name string, fd int) string { return Arg(name, strconv.Itoa(fd)) }
