package node

import (
	"bytes"
	"context"
	"io"
	"net/url"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Attach speaks to a container until f returns, and then hangs up.
func (c *Container) Attach(tty bool, f func(stdin io.Writer, out func() string, resize chan<- remotecommand.TerminalSize)) {
	t := c.Sandbox.Node.T
	t.Helper()
	r, err := c.Sandbox.Node.Runtime.Attach(c.Sandbox.Node.Ctx(), &runtimeapi.AttachRequest{ContainerId: c.ID, Stdin: true, Stdout: true, Stderr: !tty, Tty: tty})
	if err != nil {
		t.Fatal(err)
	}
	e, err := SPDYExecutor(r.Url)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.Sandbox.Node.Ctx())
	in, write := io.Pipe()
	queue := make(Sizes, 1)
	var out Buffer
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

// ExecURL asks for a stream; client-go's executor speaks to it.
func (c *Container) ExecURL(r *runtimeapi.ExecRequest) string {
	c.Sandbox.Node.T.Helper()
	r.ContainerId = c.ID
	out, err := c.Sandbox.Node.Runtime.Exec(c.Sandbox.Node.Ctx(), r)
	if err != nil {
		c.Sandbox.Node.T.Fatal(err)
	}
	return out.Url
}

// SPDYExecutor speaks to the URL of an exec or attach.
func SPDYExecutor(raw string) (remotecommand.Executor, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, err
	}
	return remotecommand.NewSPDYExecutor(&rest.Config{}, "POST", u)
}

// WebSocketExecutor is SPDYExecutor with WebSocket, and the protocols of a
// client; with none, those of kubectl.
func WebSocketExecutor(protocols ...string) func(raw string) (remotecommand.Executor, error) {
	return func(raw string) (remotecommand.Executor, error) {
		if len(protocols) == 0 {
			return remotecommand.NewWebSocketExecutor(&rest.Config{}, "GET", raw)
		}
		return remotecommand.NewWebSocketExecutorForProtocols(&rest.Config{}, "GET", raw, protocols...)
	}
}

// Executors are the ways to the URL of an exec or attach.
var Executors = map[string]func(raw string) (remotecommand.Executor, error){
	"spdy":         SPDYExecutor,
	"websocket":    WebSocketExecutor(),
	"websocket v4": WebSocketExecutor("v4.channel.k8s.io"),
}

// Sizes are what a terminal is resized to, one after the other.
type Sizes chan remotecommand.TerminalSize

// Next is nil when the channel is closed.
func (s Sizes) Next() *remotecommand.TerminalSize {
	v, ok := <-s
	if !ok {
		return nil
	}
	return &v
}
