package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// Lock makes sure that nobody else keeps the pods of an agent's name: two agents would
// each take away what the other one starts. It is in a folder on a tmpfs, and ends with
// the process, too. The error is errdefs.ErrAlreadyExists if somebody else has it, and says
// who.
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
		err = fmt.Errorf("%s keeps the pods of this machine, and holds %s; end that first: %w", holder(f), path, errdefs.ErrAlreadyExists)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	// Who holds it is for people alone: a full disk is no reason not to begin.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	}
	return func() { _ = f.Close() }, nil
}

// holder names the process that has written its number into a lock.
func holder(f *os.File) string {
	text := make([]byte, 20)
	n, _ := f.ReadAt(text, 0)
	pid, err := strconv.Atoi(string(text[:n]))
	if err != nil {
		return "another process"
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil { // it is of another pid namespace
		return fmt.Sprintf("another process (pid %d)", pid)
	}
	return fmt.Sprintf("process %d (%s)", pid, strings.TrimSpace(string(name)))
}
