// Package deputy is what processes have in common that stand in for a container
// whose own process the host does not show, or does not show to its parent: they
// pass signals on, and end the way the container ended.
//
// Whom the signals are for is the caller's to say.
package deputy

import (
	"os"
	"os/signal"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Signals calls pass for each signal that this process gets, one after the other,
// but for those that are its own affair. SIGKILL and SIGSTOP cannot be passed on.
func Signals(pass func(syscall.Signal)) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals)
	for s := range signals {
		number, ok := s.(syscall.Signal)
		if !ok || number == syscall.SIGURG || number == syscall.SIGCHLD || number == syscall.SIGPIPE {
			continue // SIGURG is how Go preempts goroutines
		}
		pass(number)
	}
}

// EndBy ends this process by a signal, so that its parent sees what the
// container's would have seen. Go handles most signals itself, and goes on.
func EndBy(s syscall.Signal) {
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
