package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/cgroup"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/record"
	"fairlead.run/internal/sealed"
	"fairlead.run/internal/threads"
)

// Children are told of the commands that are started, and tell how they end.
type Children interface {
	// Expect registers a command that has begun since a time, and may have ended already.
	Expect(who record.Ident, since time.Time) <-chan linux.Ended
	// Kill kills a command with its process group, unless it has ended.
	Kill(pid int)
}

// Launcher runs commands.
type Launcher struct {
	Children   Children
	Score      string       // oom_score_adj of commands; empty leaves it
	ConsoleDir string       // folder for sockets, with a short path
	Go         func(func()) // runs something that ends with the command

	programs sealed.Programs
}

// Command is one run of an OCI runtime's command line that leaves a process.
type Command struct {
	Argv, Env  []string
	Sealed     bool // see monitorv1.StartRequest
	Stdio      [3]int
	PIDFile    string
	Mark       string // one more entry of the environment
	Left       Left
	Score      *int   // oom_score_adj; nil for that of all commands
	RuntimeLog string // see monitorv1.StartRequest
	Deadline   time.Time
	Quit       <-chan struct{} // closed when nobody wants it any more
	Began      time.Time       // set by Fork
}

// Left is how that is known which a process has started and which has left it.
type Left struct {
	Mark     uint64 // see monitorv1.ExecRequest.Mark
	Anywhere bool   // and not in its cgroups alone
}

// Running is a command that was started.
type Running struct {
	Who  record.Ident
	Done <-chan linux.Ended
}

// RemovePID removes the file that an earlier command may have left.
func (c *Command) RemovePID() error {
	if err := os.Remove(c.PIDFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove old pid file: %w", err)
	}
	return nil
}

// Fork starts the command in a session of its own, so that it can be killed
// with what it started.
func (l *Launcher) Fork(c *Command) (Running, error) {
	c.Began = time.Now()
	var pid int
	fork := func(program string) (err error) {
		pid, err = syscall.ForkExec(program, c.Argv, &syscall.ProcAttr{
			Dir:   "/",
			Env:   append(slices.Clone(c.Env), c.Mark),
			Files: []uintptr{uintptr(c.Stdio[0]), uintptr(c.Stdio[1]), uintptr(c.Stdio[2])},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
		return err
	}
	run := l.programs.Run
	if !c.Sealed {
		run = func(program string, start func(string) error) error { return start(program) }
	}
	err := run(c.Argv[0], fork)
	if errors.Is(err, unix.EAGAIN) {
		return Running{}, fmt.Errorf("run %s: %w", c.Argv[0], threads.Explain(err))
	}
	if err != nil {
		return Running{}, fmt.Errorf("run %s: %w: %w", c.Argv[0], errdefs.ErrInvalidArgument, err)
	}
	if score, err := strconv.Atoi(l.Score); c.Score != nil || err == nil {
		if c.Score != nil {
			score = *c.Score
		}
		// What it starts inherits that; see Made. It has ended if this fails, or may not be spared more.
		_ = linux.SetOOMScore(pid, score)
	}
	who := record.Ident{PID: pid}
	if s, err := linux.ReadStat(pid); err == nil {
		who.Start = s.Start
	}
	return Running{Who: who, Done: l.Children.Expect(who, c.Began)}, nil
}

// reapGrace is how long the end of a command may take to be noticed.
const reapGrace = 100 * time.Millisecond

// Await waits for the command, calling look, unless it is nil, now and then, and kills it at its
// deadline, when it is given up, or when look returns an error.
func (l *Launcher) Await(ctx context.Context, c *Command, run Running, look func() error) error {
	timer := time.NewTimer(time.Until(c.Deadline))
	defer timer.Stop()
	// Runtimes take 5 to 30 ms, so most never see a tick.
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		var cause error
		select {
		case e := <-run.Done:
			return c.verdict(e)
		case <-timer.C:
			// Who was stopped past the deadline has yet to reap what ended in time.
			select {
			case e := <-run.Done:
				return c.verdict(e)
			case <-time.After(reapGrace):
			}
			cause = fmt.Errorf("%s did not end within %s and was killed: %w", c.Name(), time.Since(c.Began).Round(time.Millisecond), errdefs.ErrDeadline)
		case <-c.Quit:
			cause = fmt.Errorf("%s was killed after %s, as its start was given up: %w", c.Name(), time.Since(c.Began).Round(time.Millisecond), errdefs.ErrPrecondition)
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", c.Name(), context.Cause(ctx), errdefs.ErrUnavailable)
		case <-ticker.C:
			if look != nil {
				cause = look()
			}
		}
		if cause == nil {
			continue
		}
		killFamily(run.Who, func() { l.Children.Kill(run.Who.PID) })
		select {
		case <-run.Done:
		case <-time.After(2 * time.Second):
		}
		return cause
	}
}

// killFamily kills a command that lives by group, and what it has started beside
// its process group.
func killFamily(who record.Ident, group func()) {
	family := linux.Leader{PID: who.PID, Start: who.Start, Same: func(int) bool { return false }}
	all, _ := family.Family() // the group is killed in any case
	group()
	for _, s := range all {
		_ = s.Signal(unix.SIGKILL)
	}
}

func (c *Command) verdict(e linux.Ended) error {
	switch {
	case e.Signal != 0:
		return fmt.Errorf("%s was killed by signal %d: %w", c.Name(), e.Signal, errdefs.ErrInternal)
	case e.Code != 0:
		return fmt.Errorf("%s exited with code %d: %w", c.Name(), e.Code, errdefs.ErrInternal)
	}
	return nil
}

// Name is the command as errors call it.
func (c *Command) Name() string { return "runtime command " + c.Argv[0] }

// Made is the pid of what the command has left, which the kernel spares as the command: where it
// was forked before that had been said of the command, it has not inherited it.
func (c *Command) Made() (int, error) {
	pid, err := c.ReadPID()
	if err == nil && c.Score != nil {
		_ = linux.SetOOMScore(pid, *c.Score) // it may have ended, or may not be spared more
	}
	return pid, err
}

// ReadPID reads the pid that the command left.
func (c *Command) ReadPID() (int, error) {
	f, err := os.Open(c.PIDFile)
	if errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("%s wrote no pid file %s: %w", c.Name(), c.PIDFile, errdefs.ErrInternal)
	}
	if err != nil {
		return 0, fmt.Errorf("read pid file: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0, fmt.Errorf("read pid file %s: %w", c.PIDFile, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 2 {
		return 0, fmt.Errorf("%s wrote %q to pid file %s, which is no pid: %w", c.Name(), text, c.PIDFile, errdefs.ErrInternal)
	}
	return pid, nil
}

// KillLeft kills the process that a failed command may have left, with all that
// that has started. It may have ended, and the command need not have told its pid.
func (c *Command) KillLeft() {
	left := linux.Leader{Mark: c.Left.Mark, Same: func(int) bool { return true }}
	if pid, err := c.ReadPID(); err == nil {
		if s, err := linux.ReadStat(pid); err == nil {
			where := cgroup.Of(pid)
			left.PID, left.Start = pid, s.Start
			left.Same = func(other int) bool { return c.Left.Anywhere || cgroup.Of(other) == where }
		}
	}
	if left.PID != 0 || left.Mark != 0 {
		_, _ = left.Signal(unix.SIGKILL) // who asked is told of the failure before it
	}
}

// maxQuote is how much of a runtime's own words an error carries, in bytes.
const maxQuote = 2048

// Explain adds to err the end of what the runtime said.
func (c *Command) Explain(err error, output []byte) error {
	said := strings.TrimSpace(string(lastOf(output)))
	if logged := strings.TrimSpace(string(tailOf(c.RuntimeLog))); logged != "" && logged != said {
		said = strings.TrimSpace(said + "\n" + logged)
	}
	if said == "" {
		return err
	}
	if why := threads.Reached(); why != "" && threads.Tells(said) {
		err = fmt.Errorf("%w: %s: %w", err, why, errdefs.ErrExhausted)
	}
	return fmt.Errorf("%w: it said: %s", err, said)
}

func lastOf(p []byte) []byte { return p[max(0, len(p)-maxQuote):] }

func tailOf(path string) []byte {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return nil
	}
	tail := make([]byte, min(st.Size(), maxQuote))
	n, _ := f.ReadAt(tail, st.Size()-int64(len(tail)))
	return tail[:n]
}
