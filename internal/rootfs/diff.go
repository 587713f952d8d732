package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/pkg/archive"
	continuity "github.com/containerd/continuity/fs"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Diff writes what a container has changed in its root file system to a new file,
// as a layer of an OCI image. The container must not run meanwhile.
func (r *Roots) Diff(ctx context.Context, id pod.ContainerID, to string) (err error) {
	if err := checkID(id); err != nil {
		return err
	}
	upper := filepath.Join(r.dir(id), "upper")
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = errors.Join(writeDiff(ctx, f, upper), f.Close())
	}
	if err != nil {
		return fmt.Errorf("write what container %s has changed in its root file system: %w", id.Short(), err)
	}
	return nil
}

func writeDiff(ctx context.Context, to *os.File, upper string) error {
	w := archive.NewChangeWriter(to, upper)
	err := filepath.WalkDir(upper, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case path == upper:
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return change(w, strings.TrimPrefix(path, upper), path, info)
	})
	return errors.Join(err, w.Close())
}

// opaque is what the writer turns into the mark of an opaque folder: it puts
// ".wh." before the name of what is gone.
const opaque = ".wh..opq"

// change writes one file of a writable layer in the terms of an image's layer.
func change(w *archive.ChangeWriter, name, path string, info fs.FileInfo) error {
	if !info.IsDir() {
		kind := continuity.ChangeKind(continuity.ChangeKindAdd)
		if gone, err := isWhiteout(path, info); err != nil {
			return err
		} else if gone {
			kind = continuity.ChangeKindDelete
		}
		return w.HandleChange(kind, name, info, nil)
	}
	if moved, err := overlayMark(path, "redirect"); err != nil || moved != "" {
		return errors.Join(err, fmt.Errorf("folder %s was renamed, of which overlay keeps no more than a note: %w", name, errdefs.ErrUnimplemented))
	}
	if err := w.HandleChange(continuity.ChangeKindModify, name, info, nil); err != nil {
		return err
	}
	hides, err := overlayMark(path, "opaque")
	if err != nil || hides != "y" {
		return err
	}
	return w.HandleChange(continuity.ChangeKindDelete, filepath.Join(name, opaque), nil, nil)
}

// isWhiteout says whether overlay hides what is below under that name.
func isWhiteout(path string, info fs.FileInfo) (bool, error) {
	if info.Mode()&fs.ModeCharDevice == 0 {
		return false, nil
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return false, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return st.Rdev == 0, nil
}

// overlayMark is what overlay has noted of a folder, or "".
func overlayMark(path, name string) (string, error) {
	value := make([]byte, 4096)
	n, err := unix.Lgetxattr(path, "trusted.overlay."+name, value)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return "", nil
	}
	if err != nil {
		return "", &fs.PathError{Op: "getxattr", Path: path, Err: err}
	}
	return string(value[:n]), nil
}
