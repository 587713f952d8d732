// Package tree walks through the files of a volume, whatever is done to them meanwhile: by
// descriptors and not by paths, so that no link leads out of it. What is done with the files is
// for its callers.
package tree

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

const (
	// maxDepth bounds how deep a tree is followed. No path is longer.
	maxDepth = unix.PathMax / 2
	// maxKept is the same where Deep takes what is deeper: each level holds two descriptors.
	maxKept = 256
)

// Node is what a walk comes by.
type Node struct {
	FD     int // of itself: a place, for neither reading nor writing
	Parent int // of its folder; -1 at the top
	Name   string
	Stat   unix.Stat_t
}

// IsDir says whether it is a folder.
func (n *Node) IsDir() bool { return n.Stat.Mode&unix.S_IFMT == unix.S_IFDIR }

// Path names it for calls that take no descriptor of a place.
func (n *Node) Path() string { return fmt.Sprintf("/proc/thread-self/fd/%d", n.FD) }

// Walk visits everything in a tree, what is in a folder before the folder itself.
// It follows no links and enters no other mounts: those are told to Foreign, which
// may be nil. What vanishes meanwhile is left out.
type Walk struct {
	Visit   func(*Node) error
	Foreign func(parent int, name string) error
	// Deep is told of a folder that is too deep to be followed, and neither it nor what is in
	// it is visited. With nil such a one is an error: containers can make any depth, step by step.
	Deep func(*Node) error
}

// Run walks through what is at top. It ends with ctx, with its cause.
func (w *Walk) Run(ctx context.Context, top string) error {
	fd, err := unix.Open(top, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: top, Err: err}
	}
	if err := w.node(ctx, &Node{FD: fd, Parent: -1, Name: top}, 0); err != nil {
		return fmt.Errorf("walk through %s: %w", top, err)
	}
	return nil
}

func (w *Walk) node(ctx context.Context, n *Node, depth int) error {
	defer func() { _ = unix.Close(n.FD) }()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := unix.Fstat(n.FD, &n.Stat); err != nil {
		return &fs.PathError{Op: "stat", Path: n.Name, Err: err}
	}
	if n.IsDir() {
		switch {
		case depth > maxKept && w.Deep != nil:
			return w.Deep(n)
		case depth > maxDepth:
			return fmt.Errorf("folders are more than %d deep: %w", maxDepth, errdefs.ErrExhausted)
		}
		if err := w.entries(ctx, n.FD, depth); err != nil {
			return err
		}
	}
	return w.Visit(n)
}

func (w *Walk) entries(ctx context.Context, dir, depth int) error {
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

func (w *Walk) enter(ctx context.Context, dir int, name string, depth int) error {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EXDEV):
		if w.Foreign == nil {
			return nil
		}
		return w.Foreign(dir, name)
	case err != nil:
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return w.node(ctx, &Node{FD: fd, Parent: dir, Name: name}, depth+1)
}
