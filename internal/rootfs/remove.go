package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Remove deletes a writable layer (Spec.Dir). A directory that does not exist
// is no error. The root file system has to be unmounted.
func Remove(_ context.Context, dir string) error {
	err := os.RemoveAll(dir)
	if errors.Is(err, fs.ErrPermission) {
		// A privileged container may have used chattr +i.
		if err = clearFlags(dir); err == nil {
			err = os.RemoveAll(dir)
		}
	}
	if err != nil {
		return fmt.Errorf("remove writable layer %s: %w", dir, err)
	}
	return nil
}

// The flags of chattr +i and +a, from linux/fs.h.
const immutableOrAppend = 0x10 | 0x20

// clearFlags makes everything below dir deletable again. No process of the
// container is left, so nothing is exchanged for a link meanwhile.
func clearFlags(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() && !d.Type().IsRegular() {
			return nil
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return &fs.PathError{Op: "open", Path: path, Err: err}
		}
		defer func() { _ = unix.Close(fd) }()
		flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
		if err != nil || flags&immutableOrAppend == 0 {
			return nil // file systems without such flags have nothing to clear
		}
		if err := unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(flags&^immutableOrAppend)); err != nil {
			return &fs.PathError{Op: "clear flags of", Path: path, Err: err}
		}
		return nil
	})
}
