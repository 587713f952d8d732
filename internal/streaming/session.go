package streaming

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// How long a client is waited for at the end of a stream.
const (
	// linger is for closing its connection, once everything has arrived there.
	linger = time.Second
	// delivery is for taking what it was sent.
	delivery = 30 * time.Second
)

// wanted are the streams that the CRI call asked for.
type wanted struct {
	stdin, stdout, stderr, tty bool
}

// session is one exec or attach as its client sees it. What was not asked for
// is nil.
type session struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	resize         io.Reader // JSON, one size after the other
	// end tells the client how it went, and gives it time to read that.
	end func(outcome)
	// background waits until the connection is closed, and no longer.
	background sync.WaitGroup
}

// serveSession opens the streams that the client wants, does the work and tells
// the client how that went.
func (s *Server) serveSession(w http.ResponseWriter, r *http.Request, want wanted, work func(context.Context, *session) outcome) {
	ctx, u := newUpgrade(r.Context(), w, s.cfg.IdleTimeout)
	defer u.close()
	open := s.openSPDY
	if isWebSocket(r) {
		open = s.openWebSocket
	}
	sess, err := open(ctx, u, r, want)
	if err != nil {
		s.cfg.Log.DebugContext(ctx, "stream was not opened", "error", err)
		return
	}
	sess.stdin, sess.resize = u.link.reading(sess.stdin), u.link.reading(sess.resize)
	sess.stdout, sess.stderr = u.link.writing(sess.stdout), u.link.writing(sess.stderr)
	sess.end(work(ctx, sess))
	u.close() // frees what waits for the client
	sess.background.Wait()
}
