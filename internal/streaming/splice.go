package streaming

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// splice copies both ways between a client's stream and a pod's connection. The
// end of one direction is passed on and leaves the other open, as with any TCP
// connection; an error ends both. It closes all of them.
func splice(ctx context.Context, conn net.Conn, p *pair) error {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()

	var up sync.WaitGroup
	up.Go(func() {
		if _, err := io.Copy(onlyWriter{conn}, p.link.reading(p.data)); err != nil {
			_ = conn.Close() // the pod takes no more; it has nothing to say either
			return
		}
		if c, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = c.CloseWrite()
		}
	})
	_, err := io.Copy(p.link.writing(p.data), onlyReader{conn})
	if err != nil {
		_ = p.data.Reset() // ends the other direction, too
		up.Wait()
		return fmt.Errorf("copy from the pod: %w", err)
	}
	// All went well as far as the pod is concerned. Some clients close their
	// data stream only once the error stream has ended.
	_ = p.data.Close()
	_ = p.err.Close()
	up.Wait()
	return nil
}

// onlyReader hides that a connection could write itself into the stream, for
// which it would take a buffer of its own.
type onlyReader struct{ io.Reader }
