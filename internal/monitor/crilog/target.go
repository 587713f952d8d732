package crilog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// Target is where a log is: at Path, an absolute one, in Dir or in a folder
// below it. Dir is the caller's, wherever links lead there; below it no link is
// followed, because containers may write there. An empty Dir is the folder of Path.
type Target struct{ Dir, Path string }

// make makes Dir, as open does the folders below it.
func (t Target) make() error {
	if err := os.MkdirAll(t.dir(), 0o755); err != nil {
		return fmt.Errorf("make the directory of log %s: %w", t.Path, kind(err))
	}
	return nil
}

func (t Target) dir() string {
	if t.Dir != "" {
		return t.Dir
	}
	return filepath.Dir(t.Path)
}

// folder opens the folder of the log as a place, and with create makes it below Dir.
func (t Target) folder(create bool) (int, error) {
	rel, err := filepath.Rel(t.dir(), filepath.Dir(t.Path))
	if err != nil || !filepath.IsLocal(rel) {
		return -1, fmt.Errorf("open log %s: it is not below %s: %w", t.Path, t.dir(), errdefs.ErrInvalidArgument)
	}
	const place = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	at, err := unix.Open(t.dir(), place, 0)
	if err != nil {
		return -1, fmt.Errorf("open the directory of log %s: %w", t.Path, kind(err))
	}
	for part := range strings.SplitSeq(rel, "/") {
		if part == "." {
			continue
		}
		if create {
			err = unix.Mkdirat(at, part, 0o755)
		}
		next := -1
		if err == nil || errors.Is(err, unix.EEXIST) {
			next, err = unix.Openat(at, part, place|unix.O_NOFOLLOW, 0)
		}
		_ = unix.Close(at)
		if errors.Is(err, unix.ENOTDIR) {
			return -1, fmt.Errorf("open log %s: %s below %s is not a folder; the monitor does not follow a symbolic link: %w", t.Path, part, t.dir(), errdefs.ErrInvalidArgument)
		}
		if err != nil {
			return -1, fmt.Errorf("open folder %s of log %s: %w", part, t.Path, kind(err))
		}
		at = next
	}
	return at, nil
}

// open opens the log to append to it, and makes it and its folder if they are missing.
func (t Target) open() (*os.File, error) {
	at, err := t.folder(true)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(at) }()
	const flags = unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_NONBLOCK
	fd, err := unix.Openat(at, filepath.Base(t.Path), flags|unix.O_CLOEXEC|unix.O_LARGEFILE, 0o640)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("open log %s: it is a symbolic link, which the monitor does not follow: %w", t.Path, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", t.Path, kind(err))
	}
	return regular(fd, t.Path)
}

// regular takes over a descriptor of what was opened as a log.
func regular(fd int, path string) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("open log %s: it is not a regular file: %w", path, errdefs.ErrInvalidArgument)
	}
	// Cleared so that the runtime treats it as a file, which never polls.
	_ = unix.SetNonblock(fd, false)
	return os.NewFile(uintptr(fd), path), nil
}

// find opens the file that place means, which may have been renamed, or returns nil.
func (t Target) find(place Place) (*os.File, error) {
	at, err := t.folder(false)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(at) }()
	entries, err := os.ReadDir("/proc/self/fd/" + strconv.Itoa(at))
	if err != nil {
		return nil, fmt.Errorf("look for the log that was %s: %w", t.Path, err)
	}
	candidates := []string{filepath.Base(t.Path)}
	for _, e := range entries {
		candidates = append(candidates, e.Name())
	}
	for _, name := range candidates {
		var st unix.Stat_t
		if unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Dev != place.Dev || st.Ino != place.Ino || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		fd, err := unix.Openat(at, name, unix.O_WRONLY|unix.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_LARGEFILE, 0)
		if err != nil {
			return nil, fmt.Errorf("open log %s to complete it: %w", name, err)
		}
		return regular(fd, filepath.Join(filepath.Dir(t.Path), name))
	}
	return nil, nil
}
