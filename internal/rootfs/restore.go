package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// The files of a checkpoint that concern a root file system, and what is kept
// beside it.
const (
	diffFile   = "rootfs-diff.tar"
	imagesDir  = "checkpoint"
	imagesMode = 0o700
)

// Images is where Restore keeps what was captured of a container's processes.
func (r *Roots) Images(id pod.ContainerID) string { return filepath.Join(r.dir(id), imagesDir) }

// Restore changes the mounted root file system of a container as the one in the
// folder of a checkpoint was changed, and copies what was captured of the
// processes to Images. The folder of the checkpoint stays as it is.
func (r *Roots) Restore(ctx context.Context, id pod.ContainerID, from string) error {
	if err := checkID(id); err != nil {
		return err
	}
	err := r.apply(ctx, id, filepath.Join(from, diffFile))
	if err == nil {
		err = copyFiles(ctx, filepath.Join(from, imagesDir), r.Images(id))
	}
	if err != nil {
		return fmt.Errorf("restore the root file system of container %s from %s: %w", id.Short(), from, err)
	}
	return nil
}

func (r *Roots) apply(ctx context.Context, id pod.ContainerID, diff string) error {
	f, err := os.Open(diff)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.unpack(ctx, r.target(id), f)
}

// copyFiles copies the regular files of a folder, of which there are no others in
// what criu writes.
func copyFiles(ctx context.Context, from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(to), os.Mkdir(to, imagesMode)); err != nil {
		return err
	}
	for _, e := range entries {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !e.Type().IsRegular():
			return fmt.Errorf("%s is no regular file: %w", e.Name(), errdefs.ErrInvalidArgument)
		}
		if err := copyFile(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
