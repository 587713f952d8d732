package streaming

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/remotecommand"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/lifecycle"
)

// container is what a test attaches to.
type container struct {
	stdout, stderr *os.File // where the container prints: its own copies
	stdin          *os.File // what it reads
	attachment     *fakeAttachment
}

func attachable(t *testing.T) (*fakeCore, chan *container) {
	attached := make(chan *container, 1)
	core := &fakeCore{resized: make(chan [2]uint16, 1)}
	core.attach = func(stdout, stderr *os.File, stdin bool) (lifecycle.Attachment, error) {
		c := &container{stdout: dup(t, stdout), stderr: dup(t, stderr)}
		c.attachment = &fakeAttachment{done: make(chan struct{}), closed: make(chan struct{})}
		if stdin {
			r, w, err := os.Pipe()
			if err != nil {
				return nil, err
			}
			c.stdin, c.attachment.stdin = r, w
			t.Cleanup(func() { _ = r.Close() })
		}
		attached <- c
		return c.attachment, nil
	}
	return core, attached
}

func dup(t *testing.T, f *os.File) *os.File {
	if f == nil {
		return nil
	}
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var out *os.File
	_ = raw.Control(func(fd uintptr) { out = dupFD(t, int(fd)) })
	t.Cleanup(func() { _ = out.Close() })
	return out
}

func attach(t *testing.T, s *Server, dial func(string) (remotecommand.Executor, error), r *cri.AttachRequest, o remotecommand.StreamOptions) (cancel func(), result chan error) {
	t.Helper()
	r.ContainerId = "c1"
	u, err := s.AttachURL(r)
	if err != nil {
		t.Fatal(err)
	}
	x, err := dial(u)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	result = make(chan error, 1)
	go func() { result <- x.StreamWithContext(ctx, o) }()
	return cancel, result
}

func TestAttachUntilTheContainerEnds(t *testing.T) {
	overEach(t, func(t *testing.T, dial func(string) (remotecommand.Executor, error)) {
		core, attached := attachable(t)
		s := serve(t, core, nil)
		var stdout, stderr bytes.Buffer
		cancel, result := attach(t, s, dial, &cri.AttachRequest{Stdin: true, Stdout: true, Stderr: true},
			remotecommand.StreamOptions{Stdin: strings.NewReader("hello\n"), Stdout: &stdout, Stderr: &stderr})
		defer cancel()
		c := <-attached
		in := make([]byte, 6)
		if _, err := io.ReadFull(c.stdin, in); err != nil || string(in) != "hello\n" {
			t.Errorf("the container read %q and %v", in, err)
		}
		if !strings.Contains(t.Name(), "v4") {
			if n, err := c.stdin.Read(in); err != io.EOF {
				t.Errorf("the container read %d bytes and %v, want the end of its input", n, err)
			}
		}
		_, _ = io.WriteString(c.stdout, "to stdout\n")
		_, _ = io.WriteString(c.stderr, "to stderr\n")
		close(c.attachment.done)
		if err := <-result; err != nil {
			t.Errorf("got %v", err)
		}
		if stdout.String() != "to stdout\n" || stderr.String() != "to stderr\n" {
			t.Errorf("got %q and %q", stdout.String(), stderr.String())
		}
		<-c.attachment.closed
	})
}

func TestAttachLetsGoWhenTheClientGoes(t *testing.T) {
	overEach(t, func(t *testing.T, dial func(string) (remotecommand.Executor, error)) {
		core, attached := attachable(t)
		s := serve(t, core, nil)
		cancel, result := attach(t, s, dial, &cri.AttachRequest{Stdout: true}, remotecommand.StreamOptions{Stdout: io.Discard})
		c := <-attached
		cancel()
		<-result
		select {
		case <-c.attachment.closed:
		case <-time.After(10 * time.Second):
			t.Fatal("still attached after the client has gone")
		}
	})
}

func TestAttachResizes(t *testing.T) {
	overEach(t, func(t *testing.T, dial func(string) (remotecommand.Executor, error)) {
		core, attached := attachable(t)
		s := serve(t, core, nil)
		q := make(sizes, 1)
		defer close(q)
		q <- remotecommand.TerminalSize{Width: 80, Height: 25}
		cancel, result := attach(t, s, dial, &cri.AttachRequest{Stdout: true, Tty: true},
			remotecommand.StreamOptions{Stdout: io.Discard, Tty: true, TerminalSizeQueue: q})
		defer cancel()
		c := <-attached
		if got := <-core.resized; got != [2]uint16{80, 25} {
			t.Errorf("got size %v", got)
		}
		close(c.attachment.done)
		if err := <-result; err != nil {
			t.Errorf("got %v", err)
		}
	})
}

func TestAttachErrorReachesTheClient(t *testing.T) {
	core := &fakeCore{attach: func(*os.File, *os.File, bool) (lifecycle.Attachment, error) {
		return nil, errors.New("no such luck")
	}}
	s := serve(t, core, nil)
	cancel, result := attach(t, s, transports["SPDY"], &cri.AttachRequest{Stdout: true}, remotecommand.StreamOptions{Stdout: io.Discard})
	defer cancel()
	if err := <-result; err == nil || !strings.Contains(err.Error(), "no such luck") {
		t.Errorf("got %v", err)
	}
}
