// Package atomicfile replaces a file in one step: a reader sees the old
// content or the new, never a part.
//
// It is for small files that others read while they change. It is not a
// database, and it takes no locks: of two writers at once, one wins.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces path by data with exactly the mode perm, whatever the umask.
// The directory has to exist. On an error the old file is untouched and no
// other file is left; a process killed in the middle may leave a file named
// ".<base>.tmp-<number>" beside it. Nothing is flushed: after a power cut the
// file may be the old one, the new one, or empty.
func Write(path string, data []byte, perm os.FileMode) error {
	return write(path, data, perm, false)
}

// WriteSync is Write for files that have to outlive a power cut: it flushes
// the data before, and the directory after the file appears under its name.
func WriteSync(path string, data []byte, perm os.FileMode) error {
	return write(path, data, perm, true)
}

func write(path string, data []byte, perm os.FileMode, flush bool) error {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	f, err := os.CreateTemp(dir, "."+base+".tmp-*")
	if err != nil {
		return fmt.Errorf("replace %s: %w", path, Cause(err))
	}
	err = fill(f, data, perm, flush)
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		// The first failure is the one to report.
		_ = os.Remove(f.Name())
		return fmt.Errorf("replace %s: %w", path, Cause(err))
	}
	if !flush {
		return nil
	}
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("flush the directory of %s: %w", path, err)
	}
	return nil
}

// Cause leaves the name of a file out of an error, such as that of one that was to take
// another's place: it is a new one each time, and whoever tells of an error once as long as
// it is the same would never stop.
func Cause(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

// fill writes, sets the mode and closes f, also on failure.
func fill(f *os.File, data []byte, perm os.FileMode, flush bool) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Chmod(perm)
	}
	if err == nil && flush {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closed := d.Close(); err == nil {
		err = closed
	}
	return err
}
