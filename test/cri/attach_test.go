package cri

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// attach speaks to a container until f returns, and then hangs up.
func (c *container) attach(tty bool, f func(stdin io.Writer, out func() string, resize chan<- remotecommand.TerminalSize)) {
	t := c.s.n.t
	t.Helper()
	r, err := c.s.n.runtime.Attach(c.s.n.ctx(), &runtimeapi.AttachRequest{ContainerId: c.id, Stdin: true, Stdout: true, Stderr: !tty, Tty: tty})
	if err != nil {
		t.Fatal(err)
	}
	e, err := spdyExecutor(r.Url)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.s.n.ctx())
	in, write := io.Pipe()
	queue := make(sizes, 1)
	var out syncBuffer
	o := remotecommand.StreamOptions{Stdin: in, Stdout: &out, Tty: tty}
	if tty {
		o.TerminalSizeQueue = queue
	} else {
		o.Stderr = &bytes.Buffer{}
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = e.StreamWithContext(ctx, o) })
	f(write, out.String, queue)
	cancel()
	_ = write.Close()
	close(queue)
	wg.Wait()
}

func TestAttachToATerminal(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		s := n.runPod(h)
		cfg := script(`echo ready; while read line; do echo "$line $(stty size)"; done`)
		cfg.Tty, cfg.Stdin = true, true
		c := s.start(cfg)
		for _, want := range []string{"31 71", "32 72"} { // hanging up ends nothing
			c.attach(true, func(stdin io.Writer, out func() string, resize chan<- remotecommand.TerminalSize) {
				var rows, cols uint16 = 31, 71
				if want == "32 72" {
					rows, cols = 32, 72
				}
				resize <- remotecommand.TerminalSize{Height: rows, Width: cols}
				eventually(t, "the size "+want, func() bool {
					_, _ = io.WriteString(stdin, "size\n")
					return strings.Contains(out(), "size "+want)
				})
			})
		}
		if st := c.status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("%+v", st)
		}
		s.remove()
	})
}

// Standard input that is not "once" outlives the client that wrote to it.
func TestAttachAgain(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		s := n.runPod(h)
		cfg := script("while read line; do echo got $line; done; echo closed")
		cfg.Stdin = true
		c := s.start(cfg)
		for _, word := range []string{"first", "second"} {
			c.attach(false, func(stdin io.Writer, out func() string, _ chan<- remotecommand.TerminalSize) {
				_, _ = io.WriteString(stdin, word+"\n")
				eventually(t, "the answer to "+word, func() bool { return strings.Contains(out(), "got "+word) })
			})
		}
		if log := c.log(); strings.Contains(log, "closed") || !strings.Contains(log, "got first\ngot second") {
			t.Errorf("log %q", log)
		}
		s.remove()
	})
}
