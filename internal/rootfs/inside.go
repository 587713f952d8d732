package rootfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// resolve is how paths inside of a root are followed: as chroot would, with no
// way out, and not through /proc's links to other processes' files.
const resolve = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS

// retries bounds openat2's EAGAIN, which it gives when something is renamed
// while a path with ".." in it is walked.
const retries = 64

// OpenPath opens a path inside of root without reading or writing: for
// mounting on or from it by way of /proc/self/fd. Links count as they would in
// a chroot. The error wraps fs.ErrNotExist and errdefs.ErrNotFound if there is
// nothing.
func OpenPath(root, name string) (*os.File, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open root %s: %w", root, err)
	}
	defer func() { _ = unix.Close(dir) }()
	fd, err := openIn(dir, name, unix.O_PATH)
	if err != nil {
		return nil, insideError("open", root, name, err)
	}
	return os.NewFile(uintptr(fd), path.Join(root, name)), nil
}

func openIn(dir int, name string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve}
	for range retries {
		fd, err := unix.Openat2(dir, "/"+name, &how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
	return -1, unix.EAGAIN
}

// Open opens a regular file inside of root for reading. Anything else is
// refused before it is touched: opening a device or a pipe does things.
func Open(root, name string) (*os.File, error) {
	at, err := OpenPath(root, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = at.Close() }()
	info, err := at.Stat()
	if err != nil {
		return nil, insideError("look at", root, name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("open %s in %s: it is no regular file but %s: %w", name, root, info.Mode().Type(), errdefs.ErrInvalidArgument)
	}
	f, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(at.Fd())))
	if err != nil {
		return nil, insideError("open", root, name, err)
	}
	return f, nil
}

// ReadFile reads a regular file inside of root. A file of more than limit bytes
// is refused.
func ReadFile(root, name string, limit int64) ([]byte, error) {
	f, err := Open(root, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, insideError("read", root, name, err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("read %s in %s: it is larger than the %d bytes that are allowed: %w", name, root, limit, errdefs.ErrInvalidArgument)
	}
	return b, nil
}

// MkdirAll makes a folder inside of root with the parents it needs. What
// exists is left as it is.
func MkdirAll(root, name string, mode fs.FileMode) error {
	f, err := mkdirAll(root, name, mode)
	if err != nil {
		return err
	}
	return f.Close()
}

func mkdirAll(root, name string, mode fs.FileMode) (*os.File, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open root %s: %w", root, err)
	}
	defer func() { _ = unix.Close(dir) }()
	at, err := openIn(dir, "/", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, insideError("open", root, "/", err)
	}
	done := "/"
	for part := range strings.SplitSeq(strings.Trim(path.Clean("/"+name), "/"), "/") {
		if part == "" {
			continue
		}
		done = path.Join(done, part)
		next, err := openIn(dir, done, unix.O_PATH|unix.O_DIRECTORY)
		if errors.Is(err, unix.ENOENT) {
			if err = unix.Mkdirat(at, part, uint32(mode.Perm())); err == nil || errors.Is(err, unix.EEXIST) {
				next, err = openIn(dir, done, unix.O_PATH|unix.O_DIRECTORY)
			}
		}
		_ = unix.Close(at)
		if err != nil {
			return nil, insideError("make folder", root, done, err)
		}
		at = next
	}
	return os.NewFile(uintptr(at), path.Join(root, name)), nil
}

// Touch makes an empty file inside of root, with the folders it needs, to mount
// a file on. What exists is left as it is.
func Touch(root, name string, mode fs.FileMode) error {
	name = path.Clean("/" + name)
	if f, err := OpenPath(root, name); err == nil {
		return f.Close()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir, err := mkdirAll(root, path.Dir(name), 0o755)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	fd, err := unix.Openat(int(dir.Fd()), path.Base(name), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(mode.Perm()))
	if errors.Is(err, unix.EEXIST) { // a link to nowhere, or somebody was faster
		return insideError("make file", root, name, unix.EEXIST)
	}
	if err != nil {
		return insideError("make file", root, name, err)
	}
	return unix.Close(fd)
}

func insideError(verb, root, name string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%s %s in %s: %w: %w", verb, name, root, fs.ErrNotExist, errdefs.ErrNotFound)
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%s %s in %s: %w: %w", verb, name, root, err, errdefs.ErrInvalidArgument)
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%s %s in %s: this kernel lacks openat2 (Linux 5.6): %w", verb, name, root, errdefs.ErrUnimplemented)
	}
	return fmt.Errorf("%s %s in %s: %w", verb, name, root, err)
}
