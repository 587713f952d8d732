package shimcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// folder is what is kept of this container.
func (o *options) folder() string { return filepath.Join(o.root, o.id) }

// reserve makes the folder of a container and locks it. The lock is held, by
// whoever has the descriptor, until the container runs or nothing is left of it: so
// who deletes it does that neither too early nor at the same time.
func (o *options) reserve() (*os.File, error) {
	err := os.Mkdir(o.folder(), 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("container with given ID already exists: %s", o.folder())
	}
	if err != nil {
		return nil, err
	}
	return o.lock(0)
}

// startWait is how long a start that was given up may take to end: its shim has
// callLimit for the call that it is at, and as long for each that takes it back.
const startWait = 20 * time.Second

// lock takes the lock of a container's folder, and waits for it if need be. It says
// fs.ErrNotExist if there is no folder, also when that goes in the meantime.
func (o *options) lock(wait time.Duration) (*os.File, error) {
	f, err := os.Open(o.folder())
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(wait); ; time.Sleep(5 * time.Millisecond) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("container %s is being started: %w", o.id, err), f.Close())
		}
	}
}
