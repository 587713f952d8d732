package streaming

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

const portForwardProtocol = "portforward.k8s.io"

// servePortForward forwards connections over one client connection until the
// client has gone.
func (s *Server) servePortForward(w http.ResponseWriter, r *http.Request, req *cri.PortForwardRequest) {
	ctx, u := newUpgrade(r.Context(), w, s.cfg.IdleTimeout)
	defer u.close()
	if err := s.forwardOver(ctx, u, r, req); err != nil {
		s.cfg.Log.DebugContext(ctx, "stream was not opened", "error", err)
	}
}

// forwardOver forwards by what the client speaks. An error is that nothing was opened.
func (s *Server) forwardOver(ctx context.Context, u *upgrade, r *http.Request, req *cri.PortForwardRequest) error {
	if !isWebSocket(r) {
		raw, err := openForwardSPDY(u, r)
		if err != nil {
			return err
		}
		return s.serveSPDYPorts(ctx, u, raw, req)
	}
	conn, err := openForwardWebSocket(u, r, req.GetPort())
	switch {
	case err != nil:
		return err
	case conn.Subprotocol() == tunnelProtocol:
		return s.serveSPDYPorts(ctx, u, &tunnel{ws: conn}, req)
	}
	s.serveChannels(ctx, u, conn, req)
	return nil
}

// serveSPDYPorts forwards whatever connections the client begins.
func (s *Server) serveSPDYPorts(ctx context.Context, u *upgrade, raw net.Conn, req *cri.PortForwardRequest) error {
	var work sync.WaitGroup
	defer work.Wait()
	defer u.close() // ends the work
	ps := newPairs(req.GetPort(), s.cfg.StreamTimeout)
	defer ps.close()
	conn, err := spdy.NewServerConnection(raw, ps.add)
	if err != nil {
		return err
	}
	defer conn.Close()
	for {
		select {
		case p := <-ps.complete:
			p.link = u.link
			p.link.move()
			work.Go(func() {
				s.forwardPair(ctx, pod.ID(req.GetPodSandboxId()), p)
				conn.RemoveStreams(p.data, p.err)
			})
		case <-ctx.Done():
			return nil
		case <-conn.CloseChan():
			return nil
		}
	}
}

func openForwardSPDY(u *upgrade, r *http.Request) (net.Conn, error) {
	if _, err := httpstream.Handshake(r, u, []string{portForwardProtocol}); err != nil {
		return nil, err
	}
	return switchToSPDY(u, r)
}

// forwardPair carries one connection.
func (s *Server) forwardPair(ctx context.Context, id pod.ID, p *pair) {
	if err := s.forward(ctx, id, p); err != nil && ctx.Err() == nil {
		_, _ = fmt.Fprintf(p.err, "forward port %d of pod %s: %v", p.port, id.Short(), err)
		_ = p.err.Close()
		_ = p.data.Reset()
	}
}

func (s *Server) forward(ctx context.Context, id pod.ID, p *pair) error {
	p.answered.Wait() // short: an answer is sent, or the connection ends
	r, err := s.cfg.Core.FindPod(string(id))
	if err != nil {
		return err
	}
	if r.State != pod.Running && r.State != pod.Unknown {
		return fmt.Errorf("the pod is %s: %w", r.State, errdefs.ErrPrecondition)
	}
	conn, err := s.dial(ctx, r, p.port)
	if err != nil {
		return err
	}
	return splice(ctx, conn, p)
}

// dial connects to a port of the pod: in its own network, or in the node's if
// it uses that.
func (s *Server) dial(ctx context.Context, r *pod.Record, port uint16) (net.Conn, error) {
	if r.Sandbox.NetNS != "" {
		return s.cfg.Dial(ctx, r, port)
	}
	if !r.Config.HostNetwork() {
		return nil, fmt.Errorf("the pod has no network: %w", errdefs.ErrUnavailable)
	}
	var d net.Dialer
	addr := fmt.Sprint(port)
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", addr))
	if err != nil && ctx.Err() == nil {
		var err6 error
		if conn, err6 = d.DialContext(ctx, "tcp", net.JoinHostPort("::1", addr)); err6 == nil {
			return conn, nil
		}
		err = errors.Join(err, err6)
	}
	return conn, err
}

// allowed says whether the client may reach the port: any, unless the CRI call
// named some.
func allowed(ports []int32, port uint16) bool {
	return len(ports) == 0 || slices.Contains(ports, int32(port))
}
