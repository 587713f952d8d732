package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// LiftQuota takes the limit of processor time away from the cgroup, and from
// the one that crun makes below it in a scope of systemd's. Where there is none,
// or no cgroup, there is nothing to do.
func (g *Group) LiftQuota() error {
	for _, dir := range g.Dirs {
		for _, sub := range below {
			err := errors.Join(
				write(filepath.Join(dir, sub, "cpu.cfs_quota_us"), "-1"),
				write(filepath.Join(dir, sub, "cpu.max"), "max"))
			if err != nil {
				return fmt.Errorf("lift the limit of processor time: %w", err)
			}
		}
	}
	return nil
}

// write changes a file of a cgroup if it is there.
func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
