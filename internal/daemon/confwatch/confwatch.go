// Package confwatch sees when the configuration of a daemon changes.
package confwatch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/dirwatch"
)

// Source is where the configuration of a daemon can be read again.
type Source struct {
	Load func() (*config.Config, error)
	// Paths are the files and folders that it is read from.
	Paths []string
	// Again gets an element when somebody asks for it to be read, as by SIGHUP.
	Again <-chan struct{}
}

// Editors and tools write in several steps; a change is over when nothing has
// happened for a moment, but it is taken up within some moments at the latest.
const (
	settle    = 300 * time.Millisecond
	maxSettle = 10
)

const confEvents = unix.IN_CREATE | unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ATTRIB

// Follow calls changed when the configuration may have changed since it was read
// first, until ctx ends. Each time it watches before that, so that what changes
// while the files are read is seen.
func (s Source) Follow(ctx context.Context, changed func()) error {
	for ctx.Err() == nil {
		w, err := watchPaths(s.Paths)
		if err != nil {
			return err
		}
		changed()
		events := make(chan error, 1)
		waits, cancel := context.WithCancel(ctx)
		go func() { events <- s.awaitQuiet(waits, w) }()
		select {
		case err = <-events:
		case <-s.Again:
			cancel()
			err = <-events
		}
		cancel()
		if err := errors.Join(err, w.Close()); err != nil && ctx.Err() == nil {
			return fmt.Errorf("watch the configuration: %w", err)
		}
	}
	return nil
}

// watchPaths watches the folders of the configuration, or the nearest that there
// are above them.
func watchPaths(paths []string) (*os.File, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init", err)
	}
	f := os.NewFile(uintptr(fd), "configuration events")
	for _, path := range paths {
		dir, err := filepath.Abs(path)
		if err == nil {
			dir, err = dirwatch.Add(fd, dir, confEvents)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("watch %s for changes of the configuration: %w", dir, err), f.Close())
		}
	}
	return f, nil
}

// awaitQuiet returns when something has happened and been quiet since, or ctx ends.
func (s Source) awaitQuiet(ctx context.Context, w *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = w.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, 16<<10)
	err := s.awaitOurs(w, buf)
	for range maxSettle {
		if err != nil || ctx.Err() != nil {
			break
		}
		if err = w.SetReadDeadline(time.Now().Add(settle)); err == nil {
			_, err = w.Read(buf)
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil {
		return nil
	}
	return err
}

// awaitOurs reads events until there is one of the configuration.
func (s Source) awaitOurs(w *os.File, buf []byte) error {
	for {
		n, err := w.Read(buf)
		if err != nil || slices.ContainsFunc(eventNames(buf[:n]), s.concerns) {
			return err
		}
	}
}

// eventNames are the names in events of the kernel; an event of a watched folder
// itself has none.
func eventNames(events []byte) (names []string) {
	for len(events) >= unix.SizeofInotifyEvent {
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[unix.SizeofInotifyEvent-4:]))
		if end > len(events) {
			break
		}
		names = append(names, strings.TrimRight(string(events[unix.SizeofInotifyEvent:end]), "\x00"))
		events = events[end:]
	}
	return names
}

// concerns says whether a name in a watched folder may be of the configuration:
// a file of it, or a folder above one that was missing.
func (s Source) concerns(name string) bool {
	return name == "" || strings.HasSuffix(name, ".toml") ||
		slices.ContainsFunc(s.Paths, func(path string) bool { return slices.Contains(strings.Split(path, "/"), name) })
}
