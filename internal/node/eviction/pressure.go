package eviction

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Something waits for memory for 100 ms within 2 s: the shortest window that the
// kernel grants to those without CAP_SYS_RESOURCE. It takes the last byte for the
// end of the text, whatever it is.
const trigger = "some 100000 2000000\x00"

// Pressure wakes a Manager when the kernel says that processes wait for memory, as
// 10 s are long when it runs out.
type Pressure struct {
	File string // /proc/pressure/memory, or memory.pressure of a cgroup
	Wake chan<- struct{}
}

// Run wakes until ctx ends. An error says that this kernel does not tell.
func (p Pressure) Run(ctx context.Context) error {
	f, err := os.OpenFile(p.File, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("watch the pressure on memory: %w", err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteString(trigger); err != nil {
		return fmt.Errorf("watch the pressure on memory by %s: %w", p.File, err)
	}
	end, closed, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("watch the pressure on memory: %w", err)
	}
	defer func() { _ = end.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = closed.Close() })
	defer func() {
		stop()
		_ = closed.Close()
	}()
	for ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}, {Fd: int32(end.Fd())}}
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("watch the pressure on memory: %w", err)
		case fds[0].Revents&(unix.POLLERR|unix.POLLNVAL) != 0:
			return fmt.Errorf("watch the pressure on memory: %s is gone", p.File)
		case fds[0].Revents&unix.POLLPRI != 0:
			select {
			case p.Wake <- struct{}{}:
			default: // it is about to look
			}
		}
	}
	return nil
}
