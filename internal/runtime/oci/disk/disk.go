// Package disk says what is wrong with the disk under a container, where its
// runtime has words that do not. It mends nothing.
package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// Trouble looks whether the writable layer of a bundle can take no file any
// more, or returns nil. crun calls that "No such file or directory", because it
// looks for the target of a mount that it could not make.
func Trouble(bundle string) error {
	rootfs := filepath.Join(bundle, "rootfs")
	found, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(rootfs))
	if err != nil || len(found) == 0 {
		return nil // there may be other reasons; this is none that can be seen
	}
	for option := range strings.SplitSeq(found[0].VFSOptions, ",") {
		if upper, is := strings.CutPrefix(option, "upperdir="); is {
			return trouble(upper)
		}
	}
	return nil
}

// trouble says what is wrong with the file system of a folder, if anything is.
func trouble(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return failing(dir, err)
	}
	switch {
	case st.Flags&unix.ST_RDONLY != 0:
		return fmt.Errorf("the file system of %s is read-only: %w", dir, errdefs.ErrPrecondition)
	case st.Bavail == 0:
		return fmt.Errorf("the file system of %s is full: %w", dir, errdefs.ErrExhausted)
	case st.Files > 0 && st.Ffree == 0:
		return fmt.Errorf("the file system of %s has no inodes left: %w", dir, errdefs.ErrExhausted)
	}
	// One that has failed may show nothing of it before it is written to.
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return failing(dir, err)
	}
	return os.NewSyscallError("close", unix.Close(fd))
}

// failing says what a system call told of the file system of a folder.
func failing(dir string, err error) error {
	switch {
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("the file system of %s is read-only: %w", dir, errdefs.ErrPrecondition)
	case errors.Is(err, unix.EIO):
		return fmt.Errorf("the file system of %s fails: %w: %w", dir, errdefs.ErrUnavailable, err)
	}
	return nil // it need not know unnamed files
}
