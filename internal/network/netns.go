package network

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// NetNS is an open network namespace. It keeps the namespace alive until it is
// closed.
type NetNS struct {
	fd   int
	path string
}

// OpenNetNS opens the namespace pinned at path. It uses no os.File, which would
// try the descriptor with the poller first.
func OpenNetNS(path string) (*NetNS, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("open network namespace %s: %w: %w", path, err, errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	return &NetNS{fd: fd, path: path}, nil
}

// FD is the namespace's descriptor, for netlink attributes.
func (n *NetNS) FD() int { return n.fd }

// Close lets go of the namespace.
func (n *NetNS) Close() {
	_ = unix.Close(n.fd) // was only ever read
}

// Do calls fn on a thread that is in the namespace. fn must not start
// goroutines that rely on that, and should only do what cannot be done from
// outside, such as opening a socket: whatever it opens stays in that namespace.
//
// It works in a process with many threads: the thread is locked, and if it
// cannot be moved back it is left locked, so that the runtime ends it instead
// of lending it to somebody else.
func (n *NetNS) Do(fn func() error) error {
	done := make(chan error, 1)
	go func() { done <- n.onLockedThread(fn) }()
	return <-done
}

func (n *NetNS) onLockedThread(fn func() error) error {
	runtime.LockOSThread()
	home, err := OpenNetNS("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		if errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("enter %s: it is not a network namespace: %w", n.path, errdefs.ErrNotFound)
		}
		return fmt.Errorf("enter network namespace %s: %w", n.path, err)
	}
	err = fn()
	if back := unix.Setns(home.fd, unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, fmt.Errorf("leave network namespace %s: %w", n.path, back))
	}
	runtime.UnlockOSThread()
	return err
}

// InNetNS is OpenNetNS, Do and Close.
func InNetNS(path string, fn func() error) error {
	n, err := OpenNetNS(path)
	if err != nil {
		return err
	}
	defer n.Close()
	return n.Do(fn)
}
