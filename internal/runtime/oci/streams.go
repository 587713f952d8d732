package oci

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"fairlead.run/internal/pod"
)

// Session is one caller's part in the input and output of a container, as
// client.AttachSession of internal/monitor/client.
type Session interface {
	io.Writer                       // to the container's input
	CloseStdin() error              // no more input comes from here
	Wait(ctx context.Context) error // until the monitor ends the session
	Close() error
}

// StreamSource is what Streams needs of fairlead-monitor.
type StreamSource interface {
	// Attach joins a container. The readers end with its output.
	Attach(ctx context.Context, id string, stdin, stdout, stderr bool) (s Session, out, err io.Reader, _ error)
	ReopenLog(ctx context.Context, id string) error
	Resize(ctx context.Context, id string, width, height uint16) error
}

// Streams reaches the output and input of containers.
type Streams struct {
	monitor StreamSource
}

// NewStreams makes it. MonitorStreams makes m from the monitor's client.
func NewStreams(m StreamSource) *Streams { return &Streams{monitor: m} }

// ReopenLog makes the monitor write to a new file at the log's path.
func (s *Streams) ReopenLog(ctx context.Context, id pod.ContainerID) error {
	return s.monitor.ReopenLog(ctx, string(id))
}

// Resize sets the size of a container's terminal.
func (s *Streams) Resize(ctx context.Context, id pod.ContainerID, width, height uint16) error {
	return s.monitor.Resize(ctx, string(id), width, height)
}

// Attach copies the container's output from now on to stdout and stderr, as far
// as they are not nil, until the attachment is closed. The files stay the
// caller's. ctx bounds the attaching alone.
func (s *Streams) Attach(ctx context.Context, id pod.ContainerID, stdout, stderr *os.File, stdin bool) (pod.Attachment, error) {
	session, out, errs, err := s.monitor.Attach(ctx, string(id), stdin, stdout != nil, stderr != nil)
	if err != nil {
		return nil, fmt.Errorf("attach to container %s: %w", id, err)
	}
	a := &attachment{session: session, outputs: []*os.File{stdout, stderr}, done: make(chan struct{})}
	if stdin {
		read, write, err := os.Pipe()
		if err != nil {
			_ = session.Close() // the pipe's failure is the one to report
			return nil, fmt.Errorf("attach to container %s: make a pipe for its input: %w", id, err)
		}
		a.stdin, a.input = write, read
	}
	a.run(out, errs)
	return a, nil
}

// attachment copies between files and a session. Its goroutines end when the
// session does, which Close brings about.
type attachment struct {
	session Session
	outputs []*os.File
	stdin   *os.File // the caller's end
	input   *os.File // ours
	done    chan struct{}
	closing sync.Once
}

func (a *attachment) run(out, errs io.Reader) {
	var outputs sync.WaitGroup
	for i, from := range []io.Reader{out, errs} {
		if from == nil || a.outputs[i] == nil {
			continue
		}
		outputs.Go(func() {
			// A client that is gone is found out by whoever reads its end.
			_, _ = io.Copy(a.outputs[i], from)
		})
	}
	if a.input != nil {
		go a.copyInput()
	}
	go func() {
		// At the container's end, what it has written is still passed on. In all
		// other cases nobody can wait for a client that does not read.
		if err := a.session.Wait(context.Background()); err != nil {
			a.release()
		}
		outputs.Wait()
		a.release()
		close(a.done)
	}()
}

// copyInput ends when the caller closes its end, or release closes ours.
func (a *attachment) copyInput() {
	_, _ = io.Copy(writerOnly{a.session}, a.input)
	_ = a.session.CloseStdin()
	_ = a.input.Close() // the caller's next write fails
}

// writerOnly hides what io.Copy would use instead of Write.
type writerOnly struct{ io.Writer }

// release ends the session and both copies.
func (a *attachment) release() {
	a.closing.Do(func() {
		_ = a.session.Close()
		for _, f := range a.outputs {
			if f != nil {
				// A write to a client that does not read; not every file has this.
				_ = f.SetWriteDeadline(time.Unix(1, 0))
			}
		}
		if a.input != nil {
			_ = a.input.Close()
		}
	})
}

// Stdin implements pod.Attachment.
func (a *attachment) Stdin() *os.File { return a.stdin }

// Done implements pod.Attachment.
func (a *attachment) Done() <-chan struct{} { return a.done }

// Close implements pod.Attachment. It does not wait for the copies to end; Done
// tells that.
func (a *attachment) Close() error {
	a.release()
	return nil
}
