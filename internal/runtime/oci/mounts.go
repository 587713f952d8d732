package oci

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// unmountLeft takes away what a runtime that was killed has left mounted in the
// folder of that name that it keeps of a container, and that may be gone. Mounts
// elsewhere stay, also where the folder is a link, and one on the folder itself.
//
// runc until 1.1 mounts its own program there at each start and exec, and any
// runc the root file system for a restore. With the first in it the folder cannot
// be removed; with the second, everything in the root file system would be.
func unmountLeft(root, name string) error {
	folder := filepath.Join(root, name)
	if filepath.Dir(folder) != filepath.Clean(root) {
		return fmt.Errorf("%q is no container's name: %w", name, errdefs.ErrInvalidArgument)
	}
	fd, err := unix.Open(folder, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: folder, Err: err}
	}
	dir := os.NewFile(uintptr(fd), folder)
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("look for mounts: %w", err)
	}
	mounted := func(name string) bool { return mayBeMounted(fd, name) }
	// The list of mounts is long where there are many pods, and nearly always in vain.
	if !slices.ContainsFunc(names, mounted) {
		return nil
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)) // without links, as the list has it
	if err != nil {
		return fmt.Errorf("look for mounts: %w", err)
	}
	for range 2 { // to unmount, and to see that nothing is left
		mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
			return !strings.HasPrefix(m.Mountpoint, path+"/"), false
		})
		if err != nil {
			return fmt.Errorf("list mounts: %w", err)
		}
		if len(mounts) == 0 {
			return nil
		}
		for _, m := range slices.Backward(mounts) { // the newest first
			err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // gone with another
				return &fs.PathError{Op: "unmount", Path: m.Mountpoint, Err: err}
			}
		}
	}
	if slices.ContainsFunc(names, mounted) {
		return fmt.Errorf("something is still mounted in %s: %w", path, errdefs.ErrPrecondition)
	}
	return nil
}

// mayBeMounted says no if surely nothing is mounted on a name in a folder. Linux
// before 5.8 does not tell.
func mayBeMounted(folder int, name string) bool {
	var st unix.Statx_t
	err := unix.Statx(folder, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &st)
	if err != nil {
		return !errors.Is(err, unix.ENOENT)
	}
	return st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
