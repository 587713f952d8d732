package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// maxDepth bounds how deep a tree is followed. No path is longer.
const maxDepth = unix.PathMax / 2

// node is what a walk comes by.
type node struct {
	fd     int // of itself: a place, for neither reading nor writing
	parent int // of its folder; -1 at the top
	name   string
	stat   unix.Stat_t
}

func (n *node) isDir() bool { return n.stat.Mode&unix.S_IFMT == unix.S_IFDIR }

// path names it for calls that take no descriptor of a place.
func (n *node) path() string { return fmt.Sprintf("/proc/thread-self/fd/%d", n.fd) }

// walk visits everything in a tree, what is in a folder before the folder itself.
// It follows no links and enters no other mounts: those are told to foreign, which
// may be nil. What vanishes meanwhile is left out.
type walk struct {
	visit   func(*node) error
	foreign func(parent int, name string) error
}

func (w *walk) run(ctx context.Context, top string) error {
	fd, err := unix.Open(top, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: top, Err: err}
	}
	if err := w.node(ctx, &node{fd: fd, parent: -1, name: top}, 0); err != nil {
		return fmt.Errorf("walk through %s: %w", top, err)
	}
	return nil
}

func (w *walk) node(ctx context.Context, n *node, depth int) error {
	defer func() { _ = unix.Close(n.fd) }()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if depth > maxDepth {
		return fmt.Errorf("folders are more than %d deep: %w", maxDepth, errdefs.ErrExhausted)
	}
	if err := unix.Fstat(n.fd, &n.stat); err != nil {
		return &fs.PathError{Op: "stat", Path: n.name, Err: err}
	}
	if n.isDir() {
		if err := w.entries(ctx, n.fd, depth); err != nil {
			return err
		}
	}
	return w.visit(n)
}

func (w *walk) entries(ctx context.Context, dir, depth int) error {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil // it was deleted since it was found
	}
	if err != nil {
		return fmt.Errorf("open folder: %w", err)
	}
	list := os.NewFile(uintptr(fd), "folder")
	defer func() { _ = list.Close() }()
	for {
		names, err := list.Readdirnames(512)
		for _, name := range names {
			if err := w.enter(ctx, dir, name, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read folder: %w", err)
		}
	}
}

func (w *walk) enter(ctx context.Context, dir int, name string, depth int) error {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EXDEV):
		if w.foreign == nil {
			return nil
		}
		return w.foreign(dir, name)
	case err != nil:
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return w.node(ctx, &node{fd: fd, parent: dir, name: name}, depth+1)
}
