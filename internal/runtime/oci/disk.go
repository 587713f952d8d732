package oci

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// diskTrouble looks whether the writable layer of a bundle can take no file any
// more, or returns nil. crun calls that "No such file or directory", because it
// looks for the target of a mount that it could not make.
func diskTrouble(bundle string) error {
	rootfs := filepath.Join(bundle, "rootfs")
	found, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(rootfs))
	if err != nil || len(found) == 0 {
		return nil // there may be other reasons; this is none that can be seen
	}
	for option := range strings.SplitSeq(found[0].VFSOptions, ",") {
		if upper, is := strings.CutPrefix(option, "upperdir="); is {
			return fullDisk(upper)
		}
	}
	return nil
}

// fullDisk says what is wrong with the file system of a folder, if anything is.
func fullDisk(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return nil
	}
	switch {
	case st.Flags&unix.ST_RDONLY != 0:
		return fmt.Errorf("the file system of %s is read-only: %w", dir, errdefs.ErrPrecondition)
	case st.Bavail == 0:
		return fmt.Errorf("the file system of %s is full: %w", dir, errdefs.ErrExhausted)
	case st.Files > 0 && st.Ffree == 0:
		return fmt.Errorf("the file system of %s has no inodes left: %w", dir, errdefs.ErrExhausted)
	}
	return nil
}
