// Command withcgroups runs a command on a host whose cgroups suit crun, and ends
// with its exit status:
//
//	withcgroups COMMAND [ARGUMENT...]
//
// make runs the tests and the demo in it. What is done to the host, and undone
// at the end, is in test/hostprep. It is not part of the product.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"fairlead.run/test/hostprep"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: withcgroups COMMAND [ARGUMENT...]")
		os.Exit(2)
	}
	os.Exit(run(os.Args[1:]))
}

func run(command []string) int {
	// Taken from the start, so that no signal can end this before it has
	// tidied up.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)

	release, err := hostprep.Cgroups()
	if err != nil {
		return failed(err)
	}
	status := pass(command, signals)
	if err := release(); err != nil {
		return max(status, failed(err))
	}
	return status
}

// pass runs the command and hands on what this process is told to do. SIGINT
// comes from a terminal, which sends it to the command as well.
func pass(command []string, signals <-chan os.Signal) int {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return failed(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			return status(err)
		case s := <-signals:
			if s != syscall.SIGINT {
				_ = cmd.Process.Signal(s) // it may have ended just now
			}
		}
	}
}

// status is what a shell would make of the command's end.
func status(err error) int {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		if err != nil {
			return failed(err)
		}
		return 0
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return exit.ExitCode()
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, "withcgroups:", err)
	return 1
}
