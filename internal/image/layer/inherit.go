package layer

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// inheritFolders gives folders below dir the owner, mode and times that they
// have in the topmost of the layers below that has them. Layers are hostile
// ground: no symbolic link in any of them is followed.
func inheritFolders(w *watch, dir string, lowers, folders []string) error {
	slices.Sort(folders) // parents first: a hidden parent hides what is in it
	upper, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer func() { _ = unix.Close(upper) }()
	below := make([]int, 0, len(lowers))
	defer func() {
		for _, fd := range below {
			_ = unix.Close(fd)
		}
	}()
	for _, l := range lowers {
		fd, err := unix.Open(l, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", l, err)
		}
		below = append(below, fd)
	}
	for _, f := range folders {
		if err := w.step(1, 0); err != nil {
			return err
		}
		if err := inheritFolder(upper, below, f); err != nil {
			return fmt.Errorf("folder %s: %w", f, err)
		}
	}
	return w.look()
}

func inheritFolder(upper int, below []int, folder string) error {
	to, err := openFolder(upper, folder)
	if err != nil {
		if notAFolder(err) {
			return nil // replaced by a later entry, or reached through a link
		}
		return err
	}
	defer func() { _ = unix.Close(to) }()
	for _, lower := range below {
		from, err := openFolder(lower, folder)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if notAFolder(err) {
			return nil // something else is there, or a whiteout: nothing to inherit
		}
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(from) }()
		return copyAttributes(to, from)
	}
	return nil
}

func openFolder(root int, path string) (int, error) {
	return unix.Openat2(root, path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
}

func notAFolder(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV)
}

func copyAttributes(to, from int) error {
	var st unix.Stat_t
	if err := unix.Fstat(from, &st); err != nil {
		return err
	}
	if err := unix.Fchown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := unix.Fchmod(to, st.Mode&0o7777); err != nil { // after chown, which clears set-id bits
		return err
	}
	tv := []unix.Timeval{unix.NsecToTimeval(unix.TimespecToNsec(st.Atim)), unix.NsecToTimeval(unix.TimespecToNsec(st.Mtim))}
	return unix.Futimes(to, tv)
}
