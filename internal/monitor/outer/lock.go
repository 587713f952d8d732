package outer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// lockDir takes the lock of the monitor's folder. Both processes hold it by one
// open file, so it is free only when both have ended.
func lockDir(dir string) (int, error) {
	path := filepath.Join(dir, "lock")
	for {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return -1, fmt.Errorf("open lock %s: %w", path, err)
		}
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			_ = unix.Close(fd)
			return -1, fmt.Errorf("lock %s: another monitor serves this state directory: %w", path, errdefs.ErrAlreadyExists)
		}
		if err != nil {
			_ = unix.Close(fd)
			return -1, fmt.Errorf("lock %s: %w", path, err)
		}
		// A monitor that was shutting down may have removed the file between
		// the open and the lock.
		var ours, there unix.Stat_t
		if unix.Fstat(fd, &ours) == nil && unix.Stat(path, &there) == nil && ours.Ino == there.Ino {
			return fd, nil
		}
		_ = unix.Close(fd)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return -1, fmt.Errorf("make state directory of the monitor: %w", err)
		}
	}
}
