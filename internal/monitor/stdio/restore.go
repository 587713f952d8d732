package stdio

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/monitor/crilog"
	"fairlead.run/internal/monitor/handover"
	"fairlead.run/internal/monitor/journal"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/stream"
)

// Restore opens what an earlier monitor left: by name what can be opened so,
// the rest from the outer process. What is missing is missing: the container
// lives on. With inputClosed there is no input any more.
func (s *Stdio) Restore(inputClosed bool) {
	log := s.host.Log.With("id", s.id)
	if err := s.restoreOutputs(); err != nil {
		log.Error("output of a container cannot be copied any more", "error", err)
	}
	if fd, ok := s.host.Link.Take(handover.KeyTTY + s.id); ok {
		if err := s.SetMaster(fd); err != nil {
			log.Error("terminal of a container is lost", "error", err)
		}
	}
	if !s.spec.Stdin || inputClosed {
		return
	}
	if fd, ok := s.host.Link.Take(handover.KeyStdin + s.id); ok {
		s.input = fd
		return
	}
	// Both processes were dead, and the container may have seen the end of its
	// input. One that did not goes on.
	if err := s.openInput(); err != nil && !errors.Is(err, unix.ENXIO) {
		log.Warn("input of a container is closed", "error", err)
	}
}

func (s *Stdio) restoreOutputs() error {
	if s.spec.LogPath != "" {
		s.log = crilog.Later(s.logTarget())
	}
	if s.spec.TTY {
		return nil
	}
	err := s.openOutputs()
	if errors.Is(err, os.ErrNotExist) {
		return nil // before they were made
	}
	return err
}

// Finish completes a step of copying that an earlier monitor began. If it cannot
// yet, and nothing but the slot has the bytes, it keeps the slot for Start and
// returns true with the error.
func (s *Stdio) Finish(slot *journal.Slot, step journal.Step) (kept bool, err error) {
	left := stream.Left{Log: s.logTarget(), MaxLine: s.spec.LogMaxLine, FIFO: -1}
	if i := int(step.Stream) - 1; i >= 0 && i < len(s.sources) {
		left.FIFO = linux.RawFD(s.sources[i])
	}
	err = stream.Finish(slot, step, left)
	if err == nil || !step.Consumed || s.master == nil {
		return false, err
	}
	s.unfinished = append(s.unfinished, func(c *stream.Copier) { c.Continue(slot, left) })
	return true, err
}

// Resume goes on copying, if there is anything left to copy from.
func (s *Stdio) Resume(pool *journal.Pool) error {
	if len(s.sources) == 0 && s.master == nil {
		return nil
	}
	return s.Start(pool, 0)
}

// HasMaster says whether the terminal is here.
func (s *Stdio) HasMaster() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.master != nil
}
