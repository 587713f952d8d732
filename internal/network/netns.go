package network

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// InNetNS calls fn on a thread that is in the network namespace pinned at
// path. fn must not start goroutines that rely on the namespace, and should
// only do what cannot be done from outside, such as opening a socket: whatever
// it opens stays in that namespace.
//
// It works in a process with many threads: the thread is locked, and if it
// cannot be moved back it is left locked, so that the runtime ends it instead
// of lending it to somebody else.
func InNetNS(path string, fn func() error) error {
	target, err := os.Open(path)
	if err != nil {
		kind := errdefs.ErrInternal
		if errors.Is(err, os.ErrNotExist) {
			kind = errdefs.ErrNotFound
		}
		return fmt.Errorf("open network namespace: %w: %w", err, kind)
	}
	defer target.Close() // read-only
	done := make(chan error, 1)
	go func() { done <- onLockedThread(target, fn) }()
	return <-done
}

func onLockedThread(target *os.File, fn func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open own network namespace: %w", err)
	}
	defer home.Close() // read-only
	if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		if errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("enter %s: it is not a network namespace: %w", target.Name(), errdefs.ErrNotFound)
		}
		return fmt.Errorf("enter network namespace %s: %w", target.Name(), err)
	}
	err = fn()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, fmt.Errorf("leave network namespace %s: %w", target.Name(), back))
	}
	runtime.UnlockOSThread()
	return err
}
