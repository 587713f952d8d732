package stdio

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/handover"
	"fairlead.run/internal/monitor/journal"
	"fairlead.run/internal/monitor/linux"
)

// Copies returns descriptors for what the container's output is in, for who
// keeps it from being lost with this process. They become the caller's. What is
// closed is not there any more.
func (s *Stdio) Copies() (what []monitorv1.Kept, fds []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, names := s.sources, []monitorv1.Kept{monitorv1.KeptStdout, monitorv1.KeptStderr}
	if s.master != nil {
		from, names = []*os.File{s.master}, []monitorv1.Kept{monitorv1.KeptTerminal}
	}
	for i, f := range from {
		if fd, err := linux.Duplicate(f); err == nil {
			what, fds = append(what, names[i]), append(fds, fd)
		}
	}
	return what, fds
}

// Give takes back the terminal that an earlier monitor had, and copies what it
// holds. It closes fd if it fails.
func (s *Stdio) Give(pool *journal.Pool, fd int) error {
	if !s.MissesTerminal() {
		_ = unix.Close(fd)
		return fmt.Errorf("take the terminal of container %s: it misses none: %w", s.id, errdefs.ErrPrecondition)
	}
	if err := s.SetMaster(fd); err != nil {
		return err
	}
	s.host.Link.Hold(handover.KeyTTY+s.id, fd)
	return s.Start(pool, 0)
}

// MissesTerminal says that the container has a terminal whose master end is not
// here.
func (s *Stdio) MissesTerminal() bool { return s.spec.TTY && !s.HasMaster() }
