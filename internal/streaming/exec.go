package streaming

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/lifecycle"
	"fairlead.run/internal/pod"
)

var execEnded = failpoint.Register("exec.ended")

// killTimeout is how long the end of a process may take that has to go because
// its client has gone or its time is over.
const killTimeout = 10 * time.Second

// execSession is the work of an exec stream.
func (s *Server) execSession(r *cri.ExecRequest) func(context.Context, *session) outcome {
	return func(ctx context.Context, sess *session) outcome {
		p := process{
			command: r.GetCmd(), tty: r.GetTty(),
			stdin: sess.stdin, stdout: sess.stdout, stderr: sess.stderr, resize: sess.resize,
			background: &sess.background,
		}
		return outcomeOf(s.run(ctx, pod.ContainerID(r.GetContainerId()), p))
	}
}

// process is what to run in a container, and where its streams go.
type process struct {
	command        []string
	tty            bool
	stdin          io.Reader
	stdout, stderr io.Writer
	resize         io.Reader
	background     *sync.WaitGroup // of what waits for the client's input
}

// run runs the process and returns how it ended. When ctx ends first, the
// process is killed with everything it started, and ctx's cause is the error.
func (s *Server) run(ctx context.Context, id pod.ContainerID, p process) (_ pod.Exit, err error) {
	var std *pipes
	opts := lifecycle.ExecOptions{Command: p.command, TTY: p.tty}
	if !p.tty {
		if std, err = newPipes([3]bool{p.stdin != nil, p.stdout != nil, p.stderr != nil}); err != nil {
			return pod.Exit{}, err
		}
		defer std.close()
		opts.Stdio = std.theirs
	}
	x, err := s.cfg.Core.Exec(ctx, id, opts)
	if err != nil {
		return pod.Exit{}, errors.Join(context.Cause(ctx), err)
	}
	defer s.forget(ctx, x)
	if p.tty {
		if std, err = terminal(x); err != nil {
			return pod.Exit{}, errors.Join(err, kill(ctx, x))
		}
		defer std.close()
	}
	s.takeInput(p, std.ours[0])

	ended := make(chan struct{})
	var outputs sync.WaitGroup
	for i, dst := range map[int]io.Writer{1: p.stdout, 2: p.stderr} {
		if src := std.ours[i]; src != nil {
			outputs.Go(func() { s.note(ctx, drain(orDiscard(dst), src, ended)) })
		}
	}
	exit, err := wait(ctx, x)
	finish(std.ours[1:], ended)
	outputs.Wait()
	// The end of a client is told as that of its input, too, at which a process may
	// end by itself. What it has left behind goes with the client.
	if err == nil && p.background != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), kill(ctx, x))
	}
	if err == nil {
		err = failpoint.Hit(execEnded)
	}
	return exit, err
}

// terminal has the process's terminal in place of pipes. It is read even if
// nobody wants the output, because a full terminal stops the process.
func terminal(x lifecycle.Exec) (*pipes, error) {
	master, err := pollable(x.TTY())
	switch {
	case err != nil:
		return nil, fmt.Errorf("take the terminal of the process: %w", err)
	case master == nil:
		return nil, errors.New("the process has no terminal although one was asked for")
	}
	return &pipes{ours: [3]*os.File{master, master, nil}}, nil
}

// takeInput copies the client's input and its window's size until the client
// is done, which may be long after the process is.
func (s *Server) takeInput(p process, dst *os.File) {
	if p.stdin != nil {
		p.background.Go(func() {
			feed(dst, p.stdin, func() {
				if !p.tty { // a terminal has no end of input to send
					_ = dst.Close()
				}
			})
		})
	}
	if p.resize != nil && p.tty {
		p.background.Go(func() { readSizes(p.resize, func(w, h uint16) { setSize(dst, w, h) }) })
	}
}

// wait returns how the process ended, and sees to it that it does once ctx is over.
func wait(ctx context.Context, x lifecycle.Exec) (pod.Exit, error) {
	exit, err := x.Wait(ctx)
	if ctx.Err() == nil || err == nil {
		return exit, err
	}
	return pod.Exit{}, errors.Join(context.Cause(ctx), kill(ctx, x))
}

// kill ends the process, and does not mind if that came first.
func kill(ctx context.Context, x lifecycle.Exec) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	if err := x.Kill(ctx); err != nil && !errors.Is(err, errdefs.ErrNotFound) {
		return fmt.Errorf("kill the process: %w", err)
	}
	if _, err := x.Wait(ctx); err != nil && !errors.Is(err, errdefs.ErrNotFound) {
		return fmt.Errorf("wait for the killed process: %w", err)
	}
	return nil
}

// forget frees what is kept of a process. A failure takes nothing away from
// what the process did, so that it is no failure of the stream.
func (s *Server) forget(ctx context.Context, x lifecycle.Exec) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	if err := x.Close(ctx); err != nil {
		s.cfg.Log.WarnContext(ctx, "a process in a container could not be forgotten, and is tried again", "error", err)
	}
}

// note logs a copy that failed. Its client sees for itself that it has gone.
func (s *Server) note(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.DebugContext(ctx, "copying a stream failed", "error", err)
	}
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}
