package userns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// Tree is a copy of a mount that is attached nowhere. Close it when it is
// attached, or to give it up.
type Tree struct{ fd int }

// Options say what is copied and how.
type Options struct {
	// Below copies what is mounted below the path too. Only the topmost mount is
	// mapped.
	Below bool
	// Propagation is how mounts travel between the original and the copy:
	// unix.MS_PRIVATE or unix.MS_SLAVE, or zero to leave it as it is.
	Propagation uint64
}

// Copy copies the mount at a file or folder. In the copy every file has the
// owner that the user namespace at ns maps its own to. Where the kernel or the
// file system cannot do that, the error wraps errdefs.ErrUnimplemented.
func Copy(path, ns string, o Options) (*Tree, error) {
	user, err := unix.Open(ns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: ns, Err: err}
	}
	defer func() { _ = unix.Close(user) }()
	flags, deep := uint(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC), uint(0)
	if o.Below {
		deep = unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, flags|deep)
	if err != nil {
		return nil, explain("open_tree", path, err)
	}
	t := &Tree{fd: fd}
	if o.Propagation != 0 {
		err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|deep, &unix.MountAttr{Propagation: o.Propagation})
		if err != nil {
			t.Close()
			return nil, explain("mount_setattr", path, err)
		}
	}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(user)})
	if err != nil {
		t.Close()
		return nil, explain("mount_setattr", path, err)
	}
	return t, nil
}

// FD is the descriptor of its topmost mount.
func (t *Tree) FD() int { return t.fd }

// Attach mounts it at a path.
func (t *Tree) Attach(at string) error {
	if err := unix.MoveMount(t.fd, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &fs.PathError{Op: "move_mount", Path: at, Err: err}
	}
	return nil
}

// Close lets go of it. What is not attached is gone.
func (t *Tree) Close() { _ = unix.Close(t.fd) }

// explain tells what the kernel or the file system lacks from what is wrong
// with the path.
func explain(call, path string, err error) error {
	err = os.NewSyscallError(call, err)
	switch {
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("map the owners of %s: this kernel cannot; it takes Linux 5.12 or later: %w: %w", path, err, errdefs.ErrUnimplemented)
	case call == "mount_setattr" && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)):
		return fmt.Errorf("map the owners of %s: its file system (%s) cannot on this kernel: %w: %w", path, fileSystem(path), err, errdefs.ErrUnimplemented)
	case call == "mount_setattr" && errors.Is(err, unix.EPERM):
		return fmt.Errorf("map the owners of %s: it is mapped already, or belongs to another user namespace: %w: %w", path, err, errdefs.ErrUnimplemented)
	}
	return fmt.Errorf("map the owners of %s: %w", path, err)
}

// names of file systems that people have volumes on, by statfs's magic number.
var names = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
	unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.NFS_SUPER_MAGIC: "nfs",
	unix.FUSE_SUPER_MAGIC: "fuse", unix.V9FS_MAGIC: "9p", unix.CIFS_SUPER_MAGIC: "cifs",
	unix.PROC_SUPER_MAGIC: "proc", unix.SYSFS_MAGIC: "sysfs", unix.RAMFS_MAGIC: "ramfs",
}

func fileSystem(path string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "unknown"
	}
	if name, ok := names[int64(st.Type)]; ok {
		return name
	}
	return fmt.Sprintf("%#x", st.Type)
}
