// Package inroot reads and makes files inside of a container's root file
// system without ever leaving it, whatever links the image has put there.
//
// It is for the few files that have to be looked at before a container starts.
// It mounts nothing and copies no trees.
package inroot

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

// resolve follows paths as chroot would, with no way out, and not through
// /proc's links to the open files of other processes.
const resolve = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS

// retries bounds EAGAIN, which openat2 gives when something is renamed while it
// walks a path with ".." in it.
const retries = 64

// OpenPath opens a path inside of root as a place, for neither reading nor
// writing. The error wraps fs.ErrNotExist if there is nothing.
func OpenPath(root, name string) (*os.File, error) {
	dir, err := openRoot(root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(dir) }()
	fd, err := openIn(dir, name, unix.O_PATH)
	if err != nil {
		return nil, insideError("open", root, name, err)
	}
	return os.NewFile(uintptr(fd), path.Join(root, name)), nil
}

// ReadFile reads a regular file inside of root. Anything else is refused before
// it is opened, because opening a device or a pipe does things; and so is a
// file of more than limit bytes.
func ReadFile(root, name string, limit int64) ([]byte, error) {
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
		return nil, fmt.Errorf("read %s in %s: not a regular file (%s): %w", name, root, info.Mode(), errdefs.ErrInvalidArgument)
	}
	f, err := os.Open(Proc(at))
	if err != nil {
		return nil, insideError("open", root, name, err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, insideError("read", root, name, err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("read %s in %s: larger than %d bytes: %w", name, root, limit, errdefs.ErrInvalidArgument)
	}
	return b, nil
}

// Folder is how a folder is made.
type Folder struct {
	Mode     fs.FileMode
	UID, GID uint32
}

// MkdirAll makes a folder inside of root, with the parents it needs. What
// exists is left as it is.
func MkdirAll(root, name string, as Folder) error {
	dir, err := openRoot(root)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dir) }()
	at, err := openIn(dir, "/", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return insideError("open", root, "/", err)
	}
	defer func() { _ = unix.Close(at) }()
	done := "/"
	for part := range strings.SplitSeq(strings.Trim(path.Clean("/"+name), "/"), "/") {
		if part == "" {
			continue
		}
		done = path.Join(done, part)
		next, err := enter(dir, at, done, as)
		if err != nil {
			return insideError("make folder", root, done, err)
		}
		_ = unix.Close(at)
		at = next
	}
	return nil
}

// enter opens the folder at name, whose parent is open as at, and makes it if
// there is none.
func enter(root, at int, name string, as Folder) (int, error) {
	fd, err := openIn(root, name, unix.O_PATH|unix.O_DIRECTORY)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	made := unix.Mkdirat(at, path.Base(name), uint32(as.Mode.Perm()))
	if made != nil && !errors.Is(made, unix.EEXIST) {
		return -1, made
	}
	fd, err = openIn(root, name, unix.O_PATH|unix.O_DIRECTORY)
	if made != nil && errors.Is(err, unix.ENOENT) {
		return -1, made // a link to nowhere: it is there and yet is not
	}
	if made != nil || err != nil {
		return fd, err // perhaps somebody else's, made at the same moment
	}
	if err := unix.Fchownat(fd, "", int(as.UID), int(as.GID), unix.AT_EMPTY_PATH); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Proc is the path by which an open file can be opened again, by the goroutine
// that has it: its thread may have descriptors of its own.
func Proc(f *os.File) string { return "/proc/thread-self/fd/" + strconv.Itoa(int(f.Fd())) }

func openRoot(root string) (int, error) {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open root file system %s: %w", root, err)
	}
	return fd, nil
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

// insideError tells what the image is to blame for from what the host is.
func insideError(verb, root, name string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%s %s in %s: %w: %w", verb, name, root, fs.ErrNotExist, errdefs.ErrNotFound)
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.EEXIST), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%s %s in %s: %w: %w", verb, name, root, err, errdefs.ErrInvalidArgument)
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%s %s in %s: this kernel has no openat2, which came with Linux 5.6: %w", verb, name, root, errdefs.ErrUnimplemented)
	}
	return fmt.Errorf("%s %s in %s: %w", verb, name, root, err)
}
