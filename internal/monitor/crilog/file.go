package crilog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	mu   sync.Mutex
	path string
	file *os.File
}

// Open opens the log at path for appending, and makes it and its directory if
// they are missing. The last element of path may not be a symbolic link, and
// what is there must be a regular file: a FIFO could block the monitor.
func Open(path string) (*File, error) {
	defer leave(enter(path))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of log %s: %w", path, kind(err))
	}
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	return &File{path: path, file: f}, nil
}

// Later is Open at the first Append: for a log that may never be written to
// again, and whose absence is not to be remedied before.
func Later(path string) *File { return &File{path: path} }

func open(path string) (*os.File, error) {
	const flags = os.O_WRONLY | os.O_APPEND | os.O_CREATE | unix.O_NOFOLLOW | unix.O_NONBLOCK
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_LARGEFILE, 0o640)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("open log %s: it is a symbolic link, which the monitor does not follow: %w", path, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", path, kind(err))
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("open log %s: it is not a regular file: %w", path, errdefs.ErrInvalidArgument)
	}
	// Cleared so that the runtime treats it as a file, which never polls.
	_ = unix.SetNonblock(fd, false)
	return os.NewFile(uintptr(fd), path), nil
}

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
	defer leave(enter(l.path))
	if l.file == nil {
		f, err := open(l.path)
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
	defer leave(enter(l.path))
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return fmt.Errorf("make the directory of log %s: %w", l.path, kind(err))
	}
	f, err := open(l.path)
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
	defer leave(enter(l.path))
	return l.file.Close()
}
