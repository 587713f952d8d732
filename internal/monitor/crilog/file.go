package crilog

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
)

// The places at which a test kills the monitor while it opens a log again.
var (
	reopened = failpoint.Register("monitor.reopen.opened")
	swapped  = failpoint.Register("monitor.reopen.swapped")
)

// Place is where in which file an entry begins.
type Place struct {
	Dev, Ino uint64
	Offset   int64
}

// File is the log of one container, which its streams share. The nil *File
// discards.
type File struct {
	// reopening makes the last of several callers the one whose file is used.
	reopening sync.Mutex

	mu   sync.Mutex
	at   Target
	file *os.File
}

// Open opens a log for appending, and makes it and its directory if they are
// missing. It may not be a symbolic link, and what is there must be a regular
// file: a FIFO could block the monitor.
func Open(at Target) (*File, error) {
	defer leave(enter(at.Path))
	if err := at.make(); err != nil {
		return nil, err
	}
	f, err := at.open()
	if err != nil {
		return nil, err
	}
	return &File{at: at, file: f}, nil
}

// Later is Open at the first Append: for a log that may never be written to
// again, and whose absence is not to be remedied before.
func Later(at Target) *File { return &File{at: at} }

// kind adds to an error of the system what it means to a caller.
func kind(err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return fmt.Errorf("%w: %w", errdefs.ErrExhausted, err)
	case errors.Is(err, unix.EROFS): // it can be mended, unlike a wrong path
		return fmt.Errorf("%w: %w", errdefs.ErrPrecondition, err)
	case errors.Is(err, unix.EIO):
		return fmt.Errorf("%w: %w", errdefs.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
}

// Append writes entries as one piece. Before the first byte is written it
// tells arm where; if not all could be written it takes back what was and
// calls disarm, before anybody else can write.
func (l *File) Append(entries []byte, arm func(Place), disarm func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer leave(enter(l.at.Path))
	if l.file == nil {
		f, err := l.at.open()
		if err != nil {
			return err
		}
		l.file = f
	}
	place, err := placeOf(l.file)
	if err != nil {
		return err
	}
	arm(place)
	if _, err := l.file.Write(entries); err != nil {
		// If even this fails, entries may be cut; there is nothing better.
		truncated := l.file.Truncate(place.Offset)
		disarm()
		return errors.Join(fmt.Errorf("write log: %w", err), truncated)
	}
	return nil
}

func placeOf(f *os.File) (Place, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Place{}, fmt.Errorf("read the state of log %s: %w", f.Name(), err)
	}
	return Place{Dev: st.Dev, Ino: st.Ino, Offset: st.Size}, nil
}

// Reopen closes the file and opens its path again, between two lines. If that
// fails, the old file stays in use.
func (l *File) Reopen() error {
	if l == nil {
		return nil
	}
	l.reopening.Lock()
	defer l.reopening.Unlock()
	defer leave(enter(l.at.Path))
	if err := l.at.make(); err != nil {
		return err
	}
	f, err := l.at.open()
	if err != nil {
		return err
	}
	if err := failpoint.Hit(reopened); err != nil {
		_ = f.Close()
		return err
	}
	l.mu.Lock()
	old := l.file
	l.file = f
	l.mu.Unlock()
	_ = failpoint.Hit(swapped)
	if old == nil {
		return nil
	}
	return old.Close()
}

// Close closes the file. Nothing may be appended afterwards.
func (l *File) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	defer leave(enter(l.at.Path))
	return l.file.Close()
}
