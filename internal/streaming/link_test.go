package streaming

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// connected is a link without a watch, and its client's end.
func connected(t *testing.T) (*link, *net.TCPConn, context.Context) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ctx, gone := context.WithCancelCause(t.Context())
	t.Cleanup(func() {
		_ = client.Close()
		_ = conn.Close()
	})
	return &link{Conn: conn, r: bufio.NewReader(conn), gone: gone}, client.(*net.TCPConn), ctx
}

// What there is room for is sent however late it is, as the outcome of a command
// on a busy machine; what there is no room for is not waited for.
func TestLinkWritesAfterItsDeadline(t *testing.T) {
	l, client, ctx := connected(t)
	_ = l.SetWriteDeadline(time.Unix(1, 0))
	if n, err := l.Write([]byte("outcome")); n != 7 || err != nil || ctx.Err() != nil {
		t.Fatalf("wrote %d bytes, %v, %v", n, err, context.Cause(ctx))
	}
	got := make([]byte, 7)
	if _, err := io.ReadFull(client, got); err != nil || string(got) != "outcome" {
		t.Errorf("read %q, %v", got, err)
	}
	n, err := l.Write([]byte(strings.Repeat("x", 64<<20)))
	if n == 0 || n == 64<<20 || !errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() == nil {
		t.Errorf("a client that does not read: %d bytes, %v", n, err)
	}
}

// A client that has not got everything is not left after a moment.
func TestLeaveWaitsForWhatIsOnItsWay(t *testing.T) {
	l, client, ctx := connected(t)
	if l.sending() {
		t.Error("nothing was sent")
	}
	_ = l.SetWriteDeadline(time.Unix(1, 0))
	sent, _ := l.push([]byte(strings.Repeat("x", 64<<20)), os.ErrDeadlineExceeded)
	if !l.sending() {
		t.Error("nothing is on its way")
	}
	left := make(chan struct{})
	go func() {
		leave(ctx, l, make(chan struct{}))
		close(left)
	}()
	select {
	case <-left:
		t.Fatal("it was left")
	case <-time.After(3 * linger / 2):
	}
	if n, err := io.CopyN(io.Discard, client, int64(sent)); err != nil {
		t.Fatalf("%d of %d bytes, %v", n, sent, err)
	}
	<-left
}
