package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// binding is a part of a volume that is to be mounted on a place of the pod's own.
type binding struct {
	volume, sub, target string
	// shared lets mounts of the container out to the volume. Otherwise those of the
	// host come in, and nothing gets out.
	shared bool
}

// bind binds it. A link may lead anywhere within the volume and nowhere else. What
// is found is held by a descriptor and copied as a mount that is attached nowhere
// yet, so that no path is looked at twice.
//
// The volume may hang for so long that its pod is gone before it is open. Nothing is mounted
// then, as nobody would unmount it: not once ctx has ended, and not where the pod's own
// folders are not.
func (b binding) bind(ctx context.Context) error {
	root, err := unix.Open(b.volume, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open volume: %w", err)
	}
	defer func() { _ = unix.Close(root) }()
	fd, err := openBelow(root, b.sub)
	if errors.Is(err, unix.ENOENT) {
		fd, err = createBelow(root, b.sub)
	}
	if errors.Is(err, unix.EXDEV) {
		return fmt.Errorf("it leads out of the volume: %w", errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := mountPoint(b.target, stat.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return err
	}
	return attach(fd, b.target, b.shared)
}

// attach mounts a copy of what the descriptor holds.
func attach(fd int, target string, shared bool) error {
	const all = unix.AT_EMPTY_PATH | unix.AT_RECURSIVE
	tree, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|all)
	if err != nil {
		return fmt.Errorf("copy the mount: %w", err)
	}
	defer func() { _ = unix.Close(tree) }()
	if !shared {
		if err := unix.MountSetattr(tree, "", all, &unix.MountAttr{Propagation: unix.MS_SLAVE}); err != nil {
			return fmt.Errorf("part the copy from its original (this takes Linux 5.12 or later): %w", err)
		}
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

// mountPoint makes an empty folder or file in a folder that is there. A mount of an earlier
// attempt of the container is taken away first.
func mountPoint(target string, dir bool) error {
	if err := unmountBelow(target); err != nil {
		return err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if dir {
		return os.Mkdir(target, 0o700)
	}
	return os.WriteFile(target, nil, 0o600)
}

func openBelow(root int, path string) (int, error) {
	return unix.Openat2(root, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// createBelow makes the folders of a path that are missing, as open as the volume
// itself, and as sticky. Its group is theirs where the volume's folder passes it on.
func createBelow(root int, path string) (int, error) {
	var volume unix.Stat_t
	if err := unix.Fstat(root, &volume); err != nil {
		return -1, err
	}
	done := ""
	for step := range strings.SplitSeq(filepath.Clean(path), "/") {
		if err := createStep(root, done, step, volume.Mode&(0o777|unix.S_ISVTX)); err != nil {
			return -1, err
		}
		done = filepath.Join(done, step)
	}
	return openBelow(root, done)
}

func createStep(root int, done, step string, mode uint32) error {
	parent := root
	if done != "" {
		fd, err := openBelow(root, done)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		parent = fd
	}
	err := unix.Mkdirat(parent, step, mode)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create subPath: %w", err)
	}
	// The umask of the agent is not meant for it.
	fd, err := unix.Openat(parent, step, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the subPath that was made: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	return unix.Fchmod(fd, st.Mode&^0o777&0o7777|mode)
}
