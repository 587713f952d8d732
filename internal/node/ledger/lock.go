package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// Lock makes sure that nobody else keeps the pods of an agent's name: two agents would
// each take away what the other one starts. It is in a folder on a tmpfs, and ends with
// the process, too. The error is errdefs.ErrAlreadyExists if somebody else has it.
func Lock(state, agent string) (release func(), err error) {
	path := filepath.Join(state, "agent-"+agent+".lock")
	if err := os.MkdirAll(state, 0o711); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("another process keeps the pods of this machine, and holds %s; end that first: %w", path, errdefs.ErrAlreadyExists)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}
