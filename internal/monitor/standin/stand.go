package standin

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/sentry"
)

// stand waits for the container and ends as it did. A container whose sandbox
// dies was killed with it.
func (o *options) stand() int {
	ctx := context.Background()
	go o.pass(ctx)
	status, err := o.wait(ctx)
	if err != nil {
		endBy(syscall.SIGKILL)
	}
	if status.Signaled() {
		endBy(status.Signal())
	}
	return status.ExitStatus()
}

func (o *options) wait(ctx context.Context) (sentry.Status, error) {
	socket, err := sentry.Socket(o.root, o.sandbox)
	if err != nil {
		return 0, err
	}
	return sentry.Wait(ctx, socket, o.id)
}

// pass passes signals on to the container, but those that are this process's own
// affair. SIGKILL and SIGSTOP cannot be; whoever kills a container asks its
// sandbox.
func (o *options) pass(ctx context.Context) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals)
	for s := range signals {
		number, ok := s.(syscall.Signal)
		if !ok || number == syscall.SIGURG || number == syscall.SIGCHLD || number == syscall.SIGPIPE {
			continue // SIGURG is how Go preempts goroutines
		}
		if socket, err := sentry.Socket(o.root, o.sandbox); err == nil {
			// One that has ended needs no signal, and nobody hears of other errors.
			_ = sentry.Signal(ctx, socket, o.id, number, false)
		}
	}
}

// endBy ends this process by a signal, so that its parent sees what the
// container's would have seen. Go handles most signals itself, and goes on.
func endBy(s syscall.Signal) {
	// The memory of a stand-in is nothing that anybody wants to look at.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	var byDefault struct {
		handler, flags, restorer uintptr
		mask                     uint64
	}
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&byDefault)), 0, unsafe.Sizeof(byDefault.mask), 0, 0)
	_ = unix.Kill(os.Getpid(), s)
	select {} // until it is delivered
}
