package cgroup

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// signals counts what the kernel announces of a cgroup v1 to an eventfd: every
// time that memory runs out there or above, before it looks for somebody to
// kill, and once when it has cleared away the cgroup, some time after that has
// been removed. They wait in the eventfd until somebody wants to know; nothing
// runs meanwhile.
type signals struct {
	fd  int
	sum int
}

// listen begins to count.
func listen(dir string) (*signals, error) {
	what, err := os.Open(filepath.Join(dir, oomFile))
	if err != nil {
		return nil, err
	}
	defer what.Close() // it only names the kind of event
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an eventfd: %w", err)
	}
	if err := write(filepath.Join(dir, "cgroup.event_control"), fmt.Sprintf("%d %d", fd, what.Fd())); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &signals{fd: fd}, nil
}

// count takes in what has come.
func (s *signals) count() int {
	buf := make([]byte, 8)
	if n, err := unix.Read(s.fd, buf); err == nil && n == len(buf) {
		s.sum += int(binary.NativeEndian.Uint64(buf))
	}
	return s.sum
}

// close ends it, and the kernel's part too.
func (s *signals) close() {
	if s == nil || s.fd < 0 {
		return
	}
	_ = unix.Close(s.fd)
	s.fd = -1
}
