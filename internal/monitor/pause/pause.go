// Package pause is the program that is process 1 of a pod's PID namespace: it
// reaps whatever falls to it, and ends when it is told to.
//
// It is part of fairlead-monitor so that no image is pulled for it, and
// imports next to nothing, so that it costs next to nothing.
package pause

import (
	"os"
	"os/signal"
	"syscall"
)

// Main runs until SIGTERM or SIGINT and returns the exit code.
func Main() int {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT)
	for {
		reap()
		switch <-signals {
		case syscall.SIGTERM, syscall.SIGINT:
			return 0
		}
	}
}

func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}
