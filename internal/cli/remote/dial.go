package remote

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// maxRefusal bounds what is read of why something came to nothing.
const maxRefusal = 64 << 10

// link is a connection to a runtime's streams. Close ends it at once, also where the other
// end reads nothing any more: what is below would wait to tell it.
type link struct {
	httpstream.Connection
	raw net.Conn
}

// Close implements httpstream.Connection.
func (l link) Close() error {
	_ = l.raw.Close()
	return l.Connection.Close()
}

// dial connects to an address that a runtime gave for streams of that protocol.
func dial(ctx context.Context, address, protocol string) (httpstream.Connection, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, nil)
	if err != nil {
		return nil, fmt.Errorf("prepare the stream: %w", err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", spdy.HeaderSpdy31)
	req.Header.Set(protocolHeader, protocol)
	raw, err := dialServer(req)
	if err != nil {
		return nil, fmt.Errorf("connect to the stream: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	held, err := upgrade(raw, req)
	if err == nil && !stop() {
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the stream: %w", err), raw.Close())
	}
	conn, err := spdy.NewClientConnection(held)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the stream: %w", err), raw.Close())
	}
	return link{conn, raw}, nil
}

func dialServer(req *http.Request) (net.Conn, error) {
	host, port := req.URL.Hostname(), req.URL.Port()
	switch req.URL.Scheme {
	case "http":
		if port == "" {
			port = "80"
		}
		return (&net.Dialer{}).DialContext(req.Context(), "tcp", net.JoinHostPort(host, port))
	case "https":
		if port == "" {
			port = "443"
		}
		d := tls.Dialer{Config: &tls.Config{ServerName: host, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}}
		return d.DialContext(req.Context(), "tcp", net.JoinHostPort(host, port))
	}
	return nil, fmt.Errorf("the runtime gave %q for it, which is neither http nor https", req.URL.Redacted())
}

// upgrade asks for the streams. What it gives is the connection from then on.
func upgrade(raw net.Conn, req *http.Request) (net.Conn, error) {
	if err := req.Write(raw); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(raw)
	resp, err := http.ReadResponse(reader, req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
		return nil, fmt.Errorf("the runtime answers %s", strings.TrimSuffix(resp.Status+": "+strings.TrimSpace(string(text)), ": "))
	}
	if got, want := resp.Header.Get(protocolHeader), req.Header.Get(protocolHeader); got != want {
		return nil, fmt.Errorf("the runtime speaks %q, want %s", got, want)
	}
	return buffered{raw, reader}, nil
}

// buffered is a connection of which some bytes may be in memory already.
type buffered struct {
	net.Conn
	from *bufio.Reader
}

// Read implements net.Conn.
func (b buffered) Read(p []byte) (int, error) { return b.from.Read(p) }
