package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/runtime"
	"fairlead.run/internal/threads"
)

// tool is a runtime's program with the flags that every call has.
type tool struct {
	def     runtime.Definition
	root    string
	systemd bool
	flags   []string // that this runtime has besides
	adapter Adapter  // nil for an OCI runtime
	runtime string   // what the program calls itself, where it is being tried
	from    from     // where it is executed from there
}

// argv is a whole command. log is the file that the runtime writes its log to;
// empty leaves it on standard error.
func (t tool) argv(log string, args ...string) ([]string, error) {
	program, err := t.def.Program()
	if err != nil && t.adapter == nil {
		return nil, err
	}
	argv := append([]string{program}, t.def.Args...)
	if t.adapter != nil {
		argv = t.adapter.Command(program)
	}
	argv = append(argv, "--root", t.root, "--log-format", "json")
	argv = append(argv, t.flags...)
	if log != "" {
		argv = append(argv, "--log", log)
	}
	if t.systemd {
		argv = append(argv, "--systemd-cgroup")
	}
	return append(argv, args...), nil
}

// environ is the environment of runtimes: nothing of the daemon's but PATH, so
// that no variable that it was started with changes what a runtime does.
func environ() []string {
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	env := []string{"PATH=" + path}
	if places := os.Getenv(failpoint.ShimEnv); places != "" {
		env = append(env, failpoint.ShimEnv+"="+places)
	}
	return env
}

// errOutput bounds what is kept of a command's output, in bytes. A program that
// prints more than that says the important part last.
const errOutput = 64 << 10

// talk runs a command to its end. When ctx ends, it is killed with everything it
// started. An error is the runtime's own message.
func (t tool) talk(ctx context.Context, stdin *os.File, stdout io.Writer, args ...string) error {
	argv, err := t.argv("", args...)
	if err != nil {
		return err
	}
	return runWith(ctx, t.from, stdin, stdout, argv)
}

// from calls start with the path that a program is executed from.
type from func(program string, start func(path string) error) error

func asItIs(program string, start func(path string) error) error { return start(program) }

// runFrom returns the output of a command, which is bounded as talk's is.
func runFrom(ctx context.Context, where from, argv []string) ([]byte, error) {
	stdout := &tail{max: 1 << 20}
	if err := runWith(ctx, where, nil, stdout, argv); err != nil {
		return nil, err
	}
	return stdout.Bytes(), nil
}

// runWith runs a command to its end. No stdin is an empty one.
func runWith(ctx context.Context, where from, stdin *os.File, stdout io.Writer, argv []string) error {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	stderr := &tail{max: errOutput, flood: func() { giveUp(errFlood) }}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = environ(), "/"
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if stdin != nil {
		cmd.Stdin = stdin
	}
	// A group of its own: a terminal's Ctrl-C is the daemon's to handle.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second // for a grandchild that keeps the pipes open
	err := where(argv[0], func(path string) error {
		cmd.Path = path
		return cmd.Start()
	})
	if err == nil {
		err = cmd.Wait()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%s was killed: %w", argv[0], context.Cause(ctx))
	case errors.Is(context.Cause(ctx), errFlood):
		return fmt.Errorf("%s was killed: %w", argv[0], errFlood)
	case ctx.Err() != nil:
		return fmt.Errorf("%s did not end in time: %w: %w", argv[0], errdefs.ErrDeadline, context.Cause(ctx))
	}
	var exit *exec.ExitError
	if msg := lastError(stderr.Bytes()); errors.As(err, &exit) && msg != "" {
		return &toolError{msg: msg}
	}
	return fmt.Errorf("run %s: %w", argv[0], threads.Explain(err))
}

// tail keeps the end of what is written to it.
type tail struct {
	buf   bytes.Buffer // not embedded: its ReadFrom would keep everything
	max   int
	flood func() // called when more than floodLimit was written; nil for nobody
	total int
}

// floodLimit is what a command may print on standard error, in bytes.
const floodLimit = 64 << 20

var errFlood = errors.New("it printed more than 64 MiB on standard error")

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if t.total += n; t.total > floodLimit && t.flood != nil {
		t.flood()
	}
	if len(p) > t.max {
		p = p[len(p)-t.max:]
	}
	if over := t.buf.Len() + len(p) - t.max; over > 0 {
		t.buf.Next(over)
	}
	_, err := t.buf.Write(p)
	return n, err
}

// Bytes are what is kept.
func (t *tail) Bytes() []byte { return t.buf.Bytes() }
