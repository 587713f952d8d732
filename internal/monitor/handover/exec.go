package handover

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/threads"
)

// self is the running binary even after its file was replaced or deleted.
const self = "/proc/self/exe"

// requests are the signals by which a user asks the monitor for something. Each
// would end a program that does not listen for it yet, as would SIGIO.
var requests = []os.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT}

// Listen sends the signals that the monitor's processes act on to c.
func Listen(c chan<- os.Signal) {
	signal.Notify(c, append([]os.Signal{syscall.SIGCHLD}, requests...)...)
	signal.Ignore(syscall.SIGPIPE)
}

// Exec replaces the process by the binary at path, or by a new copy of the
// running one if that does not work. It returns only with an error. Requests by
// signals are ignored until the new program listens, or again sent to c.
func Exec(path string, args []string, maxProcs string, c chan<- os.Signal) error {
	argv := append([]string{path}, args...)
	env := Environment(maxProcs)
	signal.Ignore(append([]os.Signal{syscall.SIGIO}, requests...)...)
	err := syscall.Exec(path, argv, env)
	err = errors.Join(err, syscall.Exec(self, argv, env))
	if c != nil {
		Listen(c)
	}
	return fmt.Errorf("replace the monitor by %s: %w", path, err)
}

// Spawn starts the binary at path, or with fallback a copy of the running one,
// and returns its pid. The files become its descriptors 3, 4, ...
func Spawn(path string, args []string, maxProcs string, files []uintptr) (int, error) {
	attr := &syscall.ProcAttr{
		Dir:   "/",
		Env:   Environment(maxProcs),
		Files: append([]uintptr{0, 1, 2}, files...),
	}
	pid, err := syscall.ForkExec(path, append([]string{path}, args...), attr)
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", path, threads.Explain(err))
	}
	return pid, nil
}

// SpawnSelf is Spawn of the running binary, whatever is at its path by now.
func SpawnSelf(args []string, maxProcs string, files []uintptr) (int, error) {
	return Spawn(self, args, maxProcs, files)
}

// Environment is what the monitor's processes run with: few threads and an
// eager collector, because they are meant to be small, and what a test or
// systemd gave.
func Environment(maxProcs string) []string {
	env := []string{"GOMAXPROCS=" + maxProcs, "GOGC=50", "GOMEMLIMIT=64MiB", "PATH=" + defaultPath}
	for _, kept := range os.Environ() {
		name, _, _ := strings.Cut(kept, "=")
		if name == failpoint.MonitorEnv || name == "NOTIFY_SOCKET" || strings.HasPrefix(name, "FAIRLEAD_MONITOR_TEST") {
			env = append(env, kept)
		}
	}
	return env
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
