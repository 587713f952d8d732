package rootfs

import (
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

// What a container writes must not make the walk through it costly: a folder
// is read in pieces, and so many hard links are told apart.
const (
	folderPiece = 512
	maxLinks    = 1 << 17
)

// walker adds up folders of one file system.
type walker struct {
	bytes, inodes int64
	links         map[uint64]struct{} // inodes with several names
	folders       []string            // still to be read, as paths below the top
}

// usage adds up what is below a writable layer and below further folders, which
// need not be there, hard links once. What disappears meanwhile is left out, and
// so is what lies so deep that it has no path.
func usage(ctx context.Context, layer string, more ...string) (bytes, inodes int64, err error) {
	w := &walker{links: map[uint64]struct{}{}}
	if err := w.walk(ctx, layer); err != nil {
		return 0, 0, fmt.Errorf("measure writable layer %s: %w", layer, err)
	}
	for _, dir := range more {
		if err := w.walk(ctx, dir); err != nil && !errors.Is(err, errdefs.ErrNotFound) {
			return 0, 0, fmt.Errorf("measure %s: %w", dir, err)
		}
	}
	return w.bytes, w.inodes, nil
}

func (w *walker) walk(ctx context.Context, dir string) error {
	top, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return errdefs.ErrNotFound
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(top) }()
	if err = w.add(top, ".", "."); err != nil {
		return err
	}
	for len(w.folders) > 0 {
		last := len(w.folders) - 1
		next := w.folders[last]
		w.folders = w.folders[:last]
		if err := w.read(ctx, top, next); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) read(ctx context.Context, top int, folder string) error {
	// The container may put a link in the place of what was a folder before.
	fd, err := unix.Openat2(top, folder, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if left(err) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: folder, Err: err}
	}
	f := os.NewFile(uintptr(fd), folder)
	defer f.Close()
	for ctx.Err() == nil {
		names, err := f.Readdirnames(folderPiece)
		for _, name := range names {
			if err := w.add(fd, name, filepath.Join(folder, name)); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || left(err) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func (w *walker) add(at int, name, path string) error {
	var st unix.Stat_t
	err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if left(err) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		w.folders = append(w.folders, path)
	} else if st.Nlink > 1 {
		if _, seen := w.links[st.Ino]; seen {
			return nil
		}
		if len(w.links) < maxLinks {
			w.links[st.Ino] = struct{}{}
		}
	}
	w.bytes += st.Blocks * 512
	w.inodes++
	return nil
}

// left says that an error is of something that is gone, or exchanged for
// something else, or so deep that its path cannot be named.
func left(err error) bool {
	for _, fine := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EXDEV, unix.ENAMETOOLONG} {
		if errors.Is(err, fine) {
			return true
		}
	}
	return false
}
