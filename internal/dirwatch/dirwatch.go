// Package dirwatch watches a folder that may not be there yet.
package dirwatch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Add has an inotify descriptor watch the folder of an absolute path, or the nearest one
// above it while it is missing. Whoever sees an event has to call it anew: the folder may
// be there by then. The error is the kernel's for the folder that it returns.
func Add(fd int, path string, events uint32) (at string, err error) {
	return add(filepath.Clean(path), func(dir string) error {
		_, err := unix.InotifyAddWatch(fd, dir, events|unix.IN_ONLYDIR)
		return err
	})
}

func add(path string, watch func(dir string) error) (at string, err error) {
	for {
		at = path
		for err = watch(at); missing(err) && at != "/"; err = watch(at) {
			at = filepath.Dir(at)
		}
		// What was made while the watch went up it does not see.
		if err != nil || at == path || !isDir(below(at, path)) {
			return at, err
		}
	}
}

func missing(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}

// below is the next element of a path below one that is above it.
func below(above, path string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(path, above), "/")
	next, _, _ := strings.Cut(rest, "/")
	return filepath.Join(above, next)
}

func isDir(path string) bool {
	is, err := os.Stat(path)
	return err == nil && is.IsDir()
}
