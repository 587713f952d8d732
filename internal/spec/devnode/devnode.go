// Package devnode finds the device nodes of this machine and describes them for
// an OCI spec. It opens none of them.
package devnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// All is the machine's devices, but for those that a container gets of its own.
func All() ([]specs.LinuxDevice, error) { return walk("/dev", "/dev", true) }

// Find is a device, or the devices of a folder and the folders below it.
func Find(host, at string) ([]specs.LinuxDevice, error) {
	resolved, err := filepath.EvalSymlinks(host)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the node has no such device: %w", errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(resolved)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		found, err := walk(resolved, at, false)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("the folder has no devices in it: %w", errdefs.ErrInvalidArgument)
		}
		return found, err
	}
	d, err := one(resolved, at)
	if err == nil && d == nil {
		err = fmt.Errorf("it is no device but %s: %w", info.Mode(), errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return nil, err
	}
	return []specs.LinuxDevice{*d}, nil
}

// A container gets these of its own, and the host's /dev may have file systems
// and other hosts' marks in it.
var notForContainers = []string{"pts", "shm", "fd", "mqueue", "hugepages", "console", "ptmx", ".lxc", ".lxd-mounts", ".udev"}

// walk is the devices below a folder. Links are left out: what they lead
// to is there by itself. sweep leaves out what a container has of its own.
func walk(dir, at string, sweep bool) ([]specs.LinuxDevice, error) {
	var out []specs.LinuxDevice
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // unplugged since
		}
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(p, dir)
		if sweep && slices.Contains(notForContainers, e.Name()) && strings.Count(rel, "/") == 1 {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if e.Type()&fs.ModeDevice == 0 {
			return nil
		}
		d, err := one(p, path.Join(at, rel))
		if d != nil {
			out = append(out, *d)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return out, err
}

// one describes a device node; nil means that it is none.
func one(host, at string) (*specs.LinuxDevice, error) {
	var st unix.Stat_t
	if err := unix.Lstat(host, &st); err != nil {
		return nil, &fs.PathError{Op: "lstat", Path: host, Err: err}
	}
	d := &specs.LinuxDevice{
		Path:     at,
		Major:    int64(unix.Major(uint64(st.Rdev))),
		Minor:    int64(unix.Minor(uint64(st.Rdev))),
		FileMode: ptr(os.FileMode(st.Mode & 0o777)),
		UID:      ptr(st.Uid),
		GID:      ptr(st.Gid),
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFBLK:
		d.Type = "b"
	case unix.S_IFCHR:
		d.Type = "c"
	default:
		return nil, nil
	}
	return d, nil
}

func ptr[T any](v T) *T { return &v }
