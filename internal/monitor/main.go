package monitor

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/monitor/cgroup"
	"fairlead.run/internal/monitor/handover"
	"fairlead.run/internal/monitor/inner"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/outer"
	"fairlead.run/internal/threads"
)

const usage = `Usage:
  fairlead-monitor --state DIR     watch over the containers of this node
  fairlead-monitor pause           hold the namespaces of a pod: reap, and end at SIGTERM
  fairlead-monitor stand-in        be what a container in a sandbox has for a process here
  fairlead-monitor --version

The monitor is the parent of the containers that fairlead starts. It is started
by fairlead itself or by systemd, ends by itself at SIGTERM when no container
lives, and becomes the binary that is on disk at SIGHUP.

Flags:
  --state DIR      state directory (default /run/fairlead)
  --cgroup NAME    cgroup below the root to move to (default: stay)
`

// Launch is the argument with which the client starts a monitor.
const Launch = "launch"

// maxStateDir leaves room in the address of a socket for the names below.
const maxStateDir = 80

// options is the command line.
type options struct {
	role, state, binary, cgroup    string
	score                          string
	handover, control, lock, ready int
	version, launch                bool
}

// Main runs the program with the arguments after its name and returns its exit
// code.
func Main(version string, args []string) int {
	if len(args) > 0 && args[0] == outer.SelfTest {
		return 0
	}
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Print(usage)
		return 0
	}
	if err == nil && o.version {
		fmt.Println("fairlead-monitor", version)
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fairlead-monitor:", err)
		return 2
	}
	if err := o.run(version); err != nil {
		return o.report(err)
	}
	return 0
}

func parse(args []string) (options, error) {
	o := options{}
	if len(args) > 0 && args[0] == Launch {
		o.launch = true
		args = args[1:]
	}
	f := flag.NewFlagSet("fairlead-monitor", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.BoolVar(&o.version, "version", false, "")
	f.StringVar(&o.state, handover.FlagState, "/run/fairlead", "")
	f.StringVar(&o.cgroup, handover.FlagCgroup, "", "")
	f.StringVar(&o.role, handover.FlagRole, handover.RoleOuter, "")
	f.StringVar(&o.score, handover.FlagScore, "", "")
	f.StringVar(&o.binary, handover.FlagBinary, "", "")
	f.IntVar(&o.handover, handover.FlagHandover, 0, "")
	f.IntVar(&o.control, handover.FlagControl, 0, "")
	f.IntVar(&o.lock, handover.FlagLock, 0, "")
	f.IntVar(&o.ready, handover.FlagReady, 0, "")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; see --help", f.Arg(0))
	}
	return o, o.complete()
}

// complete checks the options and fills in what depends on the process.
func (o *options) complete() error {
	switch {
	case !filepath.IsAbs(o.state):
		return fmt.Errorf("--state %q is not an absolute path", o.state)
	case len(o.state) > maxStateDir:
		return fmt.Errorf("--state %q is longer than %d bytes, which would not leave room for the names of sockets", o.state, maxStateDir)
	case strings.ContainsAny(o.cgroup, "/") || strings.HasPrefix(o.cgroup, "."):
		return fmt.Errorf("--cgroup %q is not the name of one cgroup below the root", o.cgroup)
	case o.role != handover.RoleInner && o.role != handover.RoleOuter:
		return fmt.Errorf("--role %q is neither %s nor %s", o.role, handover.RoleInner, handover.RoleOuter)
	}
	if o.binary != "" {
		return nil
	}
	// Not /proc/self/exe: an upgrade runs what is at the path by then.
	path, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the own binary: %w", err)
	}
	o.binary = path
	return nil
}

func (o *options) run(version string) error {
	if err := failpoint.Enable(os.Getenv(failpoint.MonitorEnv)); err != nil {
		return err
	}
	// Whatever the starter's was: containers inherit it where their runtime
	// does not set one.
	unix.Umask(0o022)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("role", o.role, "pid", os.Getpid())
	ctx := context.Background()
	switch {
	case o.launch:
		return launch(o)
	case o.role == handover.RoleInner:
		reserve(innerThreads, log)
		cfg := inner.Config{
			StateDir: o.state, Binary: o.binary, Version: version,
			Score: o.score, Control: o.control, Lock: o.lock, Log: log,
		}
		if o.handover > 0 {
			state, err := handover.Unpack(o.handover)
			if err != nil {
				return err
			}
			cfg.Kept = state.Held
		}
		return inner.Run(ctx, cfg)
	}
	cfg := outer.Config{StateDir: o.state, Binary: o.binary, Ready: o.ready, Log: log}
	if o.ready > 0 {
		if err := linux.CloseOnExec(o.ready); err != nil {
			return fmt.Errorf("use descriptor %d of --%s: %w", o.ready, handover.FlagReady, err)
		}
	}
	if o.handover > 0 {
		state, err := handover.Unpack(o.handover)
		if err != nil {
			return err
		}
		cfg.Resume = state
	} else if o.cgroup != "" {
		if err := cgroup.Enter(o.cgroup); err != nil {
			log.Warn("not in a cgroup of its own everywhere: who kills the starter's cgroup kills the monitor", "cgroup", o.cgroup, "error", err)
		}
	}
	reserve(outerThreads, log)
	return outer.Run(ctx, cfg)
}

// Threads that each process may need beside its first few; see
// docs/design/0032-process-ids.md. The inner one needs one for each log that has
// to wait for its disk.
const (
	outerThreads = 6
	innerThreads = 32
)

func reserve(n int, log *slog.Logger) {
	if err := threads.Reserve(n); err != nil {
		log.Warn("too few threads in reserve: the process may end when it needs another", "error", err)
	}
}

// report tells who started the monitor why it does not run, and returns the
// exit code.
func (o *options) report(err error) int {
	if o.ready > 0 && o.handover == 0 {
		// Nobody may be reading any more.
		_, _ = unix.Write(o.ready, []byte(err.Error()))
	}
	if errors.Is(err, errdefs.ErrAlreadyExists) {
		// What was wanted is there; systemd shall not try again.
		fmt.Fprintln(os.Stderr, "fairlead-monitor: nothing to do:", err)
		if o.ready > 0 {
			return 0
		}
		if err := introduce(context.Background(), o.state); err != nil {
			fmt.Fprintln(os.Stderr, "fairlead-monitor:", err)
			return 1
		}
		return 0
	}
	fmt.Fprintln(os.Stderr, "fairlead-monitor:", err)
	return 1
}
