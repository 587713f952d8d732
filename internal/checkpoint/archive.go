package checkpoint

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// Export writes a folder as a tar archive to a path at which nothing may be. The
// archive is root's alone, for it has the container's memory, and is seen under
// its name once it is complete.
func (f *Folders) Export(ctx context.Context, dir, to string) error {
	file, name, err := create(to)
	if err != nil {
		return fmt.Errorf("write checkpoint %s: %w", to, err)
	}
	err = write(ctx, file, dir)
	if err == nil && name == "" {
		err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", file.Fd()), unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW)
	}
	if err = errors.Join(err, file.Close()); err == nil {
		return nil
	}
	if name != "" {
		err = errors.Join(err, os.Remove(name))
	}
	if errors.Is(err, fs.ErrExist) {
		err = errThere
	}
	return fmt.Errorf("write checkpoint %s: %w", to, err)
}

var errThere = fmt.Errorf("something is there already; remove it or name another path: %w", errdefs.ErrAlreadyExists)

// create makes a file without a name in the folder of a path or, on a file system
// that has none, the file itself, whose name it then returns.
func create(path string) (f *os.File, name string, err error) {
	fd, err := unix.Open(filepath.Dir(path), unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), path), "", nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) {
		return nil, "", &fs.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		err = errThere
	}
	return f, path, err
}

func write(ctx context.Context, to io.Writer, dir string) error {
	w := tar.NewWriter(to)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		return add(ctx, w, dir, path)
	})
	return errors.Join(err, w.Close())
}

// add writes one file or folder. There is nothing else in what criu and we write.
func add(ctx context.Context, w *tar.Writer, dir, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	name, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	h, err := tar.FileInfoHeader(info, "")
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname = name, "", ""
	if info.IsDir() {
		h.Name += "/"
	}
	if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, until(ctx, f))
	return err
}

// until reads as long as ctx lasts.
func until(ctx context.Context, r io.Reader) io.Reader {
	return readFunc(func(p []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return r.Read(p)
	})
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }
