// Package volume makes the anonymous directories of an image's VOLUMEs, with
// what the image has at that place already in them.
//
// It copies files, directories, links, devices and their owners, modes, times
// and extended attributes. It mounts nothing and knows nothing of containers.
package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/inroot"
)

// Image is where the content of a volume comes from.
type Image struct {
	Root, Name string // the image's root file system, and the folder in it
	UID, GID   uint32 // whom the volume belongs to if there is no such folder
}

// Make makes dir, as a copy of what the image has at that place, or empty if
// there is nothing. A dir that exists is complete and is left as it is: a copy that
// was cut off is under another name.
func Make(ctx context.Context, of Image, dir string) error {
	if _, err := os.Lstat(dir); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look at volume %s: %w", dir, err)
	}
	tmp := dir + ".part"
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("remove the unfinished volume %s: %w", tmp, err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return fmt.Errorf("make the folder of volume %s: %w", dir, err)
	}
	if err := fill(ctx, of, tmp); err != nil {
		_ = os.RemoveAll(tmp) // the copy's failure is the one to report
		return fmt.Errorf("make volume %s from %s in the image: %w", dir, of.Name, err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("make volume %s: %w", dir, err)
	}
	return nil
}

func fill(ctx context.Context, of Image, tmp string) error {
	from, err := inroot.OpenPath(of.Root, of.Name)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.Mkdir(tmp, 0o755); err != nil {
			return err
		}
		return os.Lchown(tmp, int(of.UID), int(of.GID))
	}
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is no folder but %s: %w", of.Name, info.Mode(), errdefs.ErrInvalidArgument)
	}
	// The path of the descriptor stays on this folder, and below it WalkDir
	// follows no link: nothing outside of the image is read.
	c := copier{from: inroot.Proc(from), to: tmp}
	return c.run(ctx)
}

type copier struct {
	from, to string
	folders  []entry // finished last, because writing into them changes their times
}

type entry struct {
	from, to string
	info     fs.FileInfo
}

func (c *copier) run(ctx context.Context) error {
	// The descriptor's path is a link; "/." enters the folder.
	err := filepath.WalkDir(c.from+"/.", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return c.one(entry{from: p, to: filepath.Join(c.to, strings.TrimPrefix(p, c.from)), info: info})
	})
	if err != nil {
		return err
	}
	for i := len(c.folders) - 1; i >= 0; i-- {
		if err := attributes(c.folders[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) one(e entry) error {
	st, ok := e.info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("read the attributes of %s: %w", e.from, errdefs.ErrInternal)
	}
	switch e.info.Mode().Type() {
	case fs.ModeDir:
		c.folders = append(c.folders, e)
		return os.Mkdir(e.to, 0o700)
	case fs.ModeSymlink:
		target, err := os.Readlink(e.from)
		if err != nil {
			return err
		}
		if err := os.Symlink(target, e.to); err != nil {
			return err
		}
		return os.Lchown(e.to, int(st.Uid), int(st.Gid))
	case 0:
		if err := content(e); err != nil {
			return err
		}
	case fs.ModeSocket:
		return nil // means nothing without the process that listened
	default:
		if err := unix.Mknod(e.to, st.Mode, int(st.Rdev)); err != nil {
			return &fs.PathError{Op: "mknod", Path: e.to, Err: err}
		}
	}
	return attributes(e)
}

func content(e entry) error {
	from, err := os.OpenFile(e.from, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := os.OpenFile(e.to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from) // copy_file_range where the file systems can
	if closed := to.Close(); err == nil {
		err = closed
	}
	return err
}

// attributes copies owner, mode, extended attributes and times, in this order:
// a change of owner drops set-user-id bits and file capabilities.
func attributes(e entry) error {
	st, ok := e.info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("read the attributes of %s: %w", e.from, errdefs.ErrInternal)
	}
	if err := os.Lchown(e.to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := unix.Chmod(e.to, st.Mode&0o7777); err != nil {
		return &fs.PathError{Op: "chmod", Path: e.to, Err: err}
	}
	if err := xattrs(e.from, e.to); err != nil {
		return err
	}
	times := []unix.Timespec{{Sec: st.Atim.Sec, Nsec: st.Atim.Nsec}, {Sec: st.Mtim.Sec, Nsec: st.Mtim.Nsec}}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, e.to, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "utimens", Path: e.to, Err: err}
	}
	return nil
}

func xattrs(from, to string) error {
	names, err := value(func(b []byte) (int, error) { return unix.Llistxattr(from, b) })
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "listxattr", Path: from, Err: err}
	}
	for name := range strings.SplitSeq(string(names), "\x00") {
		// overlay's own marks mean nothing outside of it, and labels are given anew.
		if name == "" || strings.HasPrefix(name, "trusted.overlay.") || name == "security.selinux" {
			continue
		}
		v, err := value(func(b []byte) (int, error) { return unix.Lgetxattr(from, name, b) })
		if err != nil {
			return &fs.PathError{Op: "getxattr " + name, Path: from, Err: err}
		}
		if err := unix.Lsetxattr(to, name, v, 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
			return &fs.PathError{Op: "setxattr " + name, Path: to, Err: err}
		}
	}
	return nil
}

// value calls get with a buffer that is large enough.
func value(get func([]byte) (int, error)) ([]byte, error) {
	n, err := get(nil)
	if err != nil || n == 0 {
		return nil, err
	}
	b := make([]byte, n)
	n, err = get(b)
	return b[:max(n, 0)], err
}
