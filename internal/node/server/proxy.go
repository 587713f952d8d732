package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// dialTime is how long the runtime's streaming server may take to answer.
	dialTime = 30 * time.Second
	// lingerTime is how long one direction may be silent once the other has ended.
	lingerTime = 30 * time.Second
	// maxHeader bounds what a streaming server answers before the stream.
	maxHeader = 64 << 10
	// maxRefusal bounds what it says when it refuses.
	maxRefusal = 64 << 10
)

// passedOn are the headers that make a stream. Whatever else the caller has sent,
// such as its token, is none of the runtime's business.
func passedOn(name string) bool {
	switch name {
	case "Connection", "Upgrade", "X-Stream-Protocol-Version":
		return true
	}
	return strings.HasPrefix(name, "Sec-Websocket-")
}

// join opens the stream that a runtime has prepared and joins it with the
// connection of the request, until both have ended.
func (s *Server) join(w http.ResponseWriter, r *http.Request, location string) error {
	back, answer, err := open(r, location)
	if err != nil {
		return fmt.Errorf("open the stream that the runtime has prepared: %w", err)
	}
	defer func() { _ = back.Close() }()
	if answer.StatusCode != http.StatusSwitchingProtocols {
		return refusal(answer)
	}
	front, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return fmt.Errorf("take over the connection of a stream: %w", err)
	}
	defer func() { _ = front.Close() }()
	_ = front.SetDeadline(time.Time{})
	// The first bytes of either side may be in memory already.
	held, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	client := &half{Conn: front, first: bytes.Clone(held)}
	if err := announce(front, answer); err != nil {
		return nil // the client is gone, and nobody is there to be told
	}
	stop := context.AfterFunc(r.Context(), func() {
		_ = front.Close()
		_ = back.Close()
	})
	defer stop()
	couple(client, back)
	return nil
}

// open sends the request on and reads the beginning of the answer.
func open(r *http.Request, location string) (*half, *http.Response, error) {
	u, err := url.Parse(location)
	if err != nil || u.Host == "" {
		return nil, nil, fmt.Errorf("%q is no address that can be opened: the runtime must tell a whole URL", location)
	}
	ctx, cancel := context.WithTimeout(r.Context(), dialTime)
	defer cancel()
	conn, err := dial(ctx, u)
	if err != nil {
		return nil, nil, err
	}
	// While it is waited for the answer, the one who asked may leave.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	out := &http.Request{Method: r.Method, URL: u, Host: u.Host, Header: http.Header{}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	for name, values := range r.Header {
		if passedOn(name) {
			out.Header[name] = values
		}
	}
	limit := &io.LimitedReader{R: conn, N: maxHeader}
	reader := bufio.NewReader(limit)
	err = out.Write(conn)
	var answer *http.Response
	if err == nil {
		answer, err = http.ReadResponse(reader, out)
	}
	if err == nil && !stop() {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("ask %s: %w", u.Host, err)
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		_ = conn.SetDeadline(time.Now().Add(dialTime))
	}
	// What the reader holds comes first, then the connection itself.
	held, _ := reader.Peek(reader.Buffered())
	return &half{Conn: conn, first: bytes.Clone(held)}, answer, nil
}

func dial(ctx context.Context, u *url.URL) (net.Conn, error) {
	var d interface {
		DialContext(ctx context.Context, network, address string) (net.Conn, error)
	}
	port := u.Port()
	switch u.Scheme {
	case "http":
		d = &net.Dialer{}
		if port == "" {
			port = "80"
		}
	case "https":
		d = &tls.Dialer{Config: &tls.Config{ServerName: u.Hostname(), NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}}
		if port == "" {
			port = "443"
		}
	default:
		return nil, fmt.Errorf("streams cannot be opened by %q, only by http and https", u.Scheme)
	}
	return d.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
}

// refusal is what the streaming server said instead of opening the stream.
func refusal(answer *http.Response) error {
	code := answer.StatusCode
	if code < http.StatusBadRequest {
		return refuse(http.StatusBadGateway, "the runtime did not open the stream but answered with status %d", code)
	}
	body, _ := io.ReadAll(io.LimitReader(answer.Body, maxRefusal))
	text := strings.TrimSpace(string(body))
	if text == "" {
		text = http.StatusText(code)
	}
	return refuse(code, "%s", text)
}

// announce tells the client that the stream is open.
func announce(to net.Conn, answer *http.Response) error {
	var b strings.Builder
	b.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = answer.Header.Write(&b)
	b.WriteString("\r\n")
	_, err := io.WriteString(to, b.String())
	return err
}

// half is a connection whose first bytes may be in memory.
type half struct {
	net.Conn
	first []byte
}

func (h *half) Read(b []byte) (int, error) {
	if len(h.first) > 0 {
		n := copy(b, h.first)
		h.first = h.first[n:]
		return n, nil
	}
	return h.Conn.Read(b)
}

// closeWrite says that nothing more comes.
func (h *half) closeWrite() {
	if c, ok := h.Conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
		return
	}
	_ = h.Close()
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// couple copies both ways and returns when both have ended. A direction that
// ends takes its half of the other connection along; then the other direction has
// to end, or to move. One that breaks ends both.
func couple(a, b *half) {
	var ended atomic.Bool
	one := func(to, from *half) {
		broken := pour(to, from, &ended)
		ended.Store(true)
		if broken {
			_ = a.Close()
			_ = b.Close()
			return
		}
		to.closeWrite()
		_ = to.SetReadDeadline(time.Now().Add(lingerTime))
	}
	var both sync.WaitGroup
	both.Go(func() { one(b, a) })
	one(a, b)
	both.Wait()
}

// pour copies until from ends. It says whether something broke.
func pour(to, from *half, other *atomic.Bool) bool {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		n, err := from.Read(*buf)
		if n > 0 {
			if _, err := to.Write((*buf)[:n]); err != nil {
				return true
			}
			if other.Load() {
				_ = from.SetReadDeadline(time.Now().Add(lingerTime))
			}
		}
		if errors.Is(err, io.EOF) {
			return false
		}
		if err != nil {
			return !errors.Is(err, os.ErrDeadlineExceeded) || other.Load()
		}
	}
}
