package inner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/record"
)

// command is one run of an OCI runtime's command line that leaves a process.
type command struct {
	argv, env  []string
	stdio      [3]int
	pidFile    string
	runtimeLog string
	deadline   time.Time
	began      time.Time
}

// fork starts the command in a session of its own, so that it can be killed
// with what it started.
func (in *Inner) fork(c *command) (record.Ident, <-chan linux.Ended, error) {
	if err := os.Remove(c.pidFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return record.Ident{}, nil, fmt.Errorf("remove old pid file: %w", err)
	}
	c.began = time.Now()
	pid, err := syscall.ForkExec(c.argv[0], c.argv, &syscall.ProcAttr{
		Dir:   "/",
		Env:   c.env,
		Files: []uintptr{uintptr(c.stdio[0]), uintptr(c.stdio[1]), uintptr(c.stdio[2])},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return record.Ident{}, nil, fmt.Errorf("run %s: %w: %w", c.argv[0], errdefs.ErrInvalidArgument, err)
	}
	if score, err := strconv.Atoi(in.cfg.Score); err == nil {
		// Before it can have started anything. It has ended if this fails.
		_ = linux.SetOOMScore(pid, score)
	}
	who := record.Ident{PID: pid}
	if s, err := linux.ReadStat(pid); err == nil {
		who.Start = s.Start
	}
	return who, in.table.expect(pid), nil
}

// await waits for the command, calling look now and then, and kills it at its
// deadline or when look returns an error.
func (in *Inner) await(ctx context.Context, c *command, pid int, done <-chan linux.Ended, look func() error) error {
	timer := time.NewTimer(time.Until(c.deadline))
	defer timer.Stop()
	// Runtimes take 5 to 30 ms, so most never see a tick.
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		var cause error
		select {
		case e := <-done:
			return c.verdict(e)
		case <-timer.C:
			cause = fmt.Errorf("%s did not end within %s and was killed: %w", c.name(), time.Since(c.began).Round(time.Millisecond), errdefs.ErrDeadline)
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", c.name(), context.Cause(ctx), errdefs.ErrUnavailable)
		case <-ticker.C:
			cause = look()
		}
		if cause == nil {
			continue
		}
		in.table.killCommand(pid)
		select {
		case <-done:
		case <-time.After(2 * time.Second):
		}
		return cause
	}
}

func (c *command) verdict(e linux.Ended) error {
	switch {
	case e.Signal != 0:
		return fmt.Errorf("%s was killed by signal %d: %w", c.name(), e.Signal, errdefs.ErrInternal)
	case e.Code != 0:
		return fmt.Errorf("%s exited with code %d: %w", c.name(), e.Code, errdefs.ErrInternal)
	}
	return nil
}

// name is the command as errors call it.
func (c *command) name() string { return "runtime command " + c.argv[0] }

// readPID reads the pid that the command left.
func (c *command) readPID() (int, error) {
	f, err := os.Open(c.pidFile)
	if errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("%s wrote no pid file %s: %w", c.name(), c.pidFile, errdefs.ErrInternal)
	}
	if err != nil {
		return 0, fmt.Errorf("read pid file: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0, fmt.Errorf("read pid file %s: %w", c.pidFile, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 2 {
		return 0, fmt.Errorf("%s wrote %q to pid file %s, which is no pid: %w", c.name(), text, c.pidFile, errdefs.ErrInternal)
	}
	return pid, nil
}

// killLeft kills the process that a failed command may have left.
func (c *command) killLeft() {
	pid, err := c.readPID()
	if err != nil {
		return
	}
	f, err := linux.OpenProcess(pid, 0)
	if err != nil {
		return
	}
	_ = linux.SignalProcess(f, unix.SIGKILL)
	_ = f.Close()
}

// maxQuote is how much of a runtime's own words an error carries, in bytes.
const maxQuote = 2048

// explain adds to err the end of what the runtime said.
func (c *command) explain(err error, output []byte) error {
	said := strings.TrimSpace(string(lastOf(output)))
	if logged := strings.TrimSpace(string(tailOf(c.runtimeLog))); logged != "" && logged != said {
		said = strings.TrimSpace(said + "\n" + logged)
	}
	if said == "" {
		return err
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
