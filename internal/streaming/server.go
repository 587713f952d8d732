package streaming

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/lifecycle"
	"fairlead.run/internal/pod"
)

// Core is what the streams need of the core.
type Core interface {
	// Exec closes the files in o, whether it succeeds or not.
	Exec(ctx context.Context, id pod.ContainerID, o lifecycle.ExecOptions) (lifecycle.Exec, error)
	// Attach leaves the closing of stdout and stderr to the caller.
	Attach(ctx context.Context, id pod.ContainerID, stdout, stderr *os.File, stdin bool) (lifecycle.Attachment, error)
	Resize(ctx context.Context, id pod.ContainerID, width, height uint16) error
	FindPod(id string) (*pod.Record, error)
}

// Dial connects to a TCP port on localhost as seen inside a pod that has a network
// of its own.
type Dial func(ctx context.Context, r *pod.Record, port uint16) (net.Conn, error)

// Config is what a Server works with.
type Config struct {
	Core Core
	Dial Dial
	Log  *slog.Logger
	// Address is where to listen; "" is a free port on 127.0.0.1.
	Address string
	// IdleTimeout ends a stream on which nothing moved; 0 means 4 hours.
	IdleTimeout time.Duration
	// OpenTimeout is how long a URL is good for; 0 means a minute.
	OpenTimeout time.Duration
	// StreamTimeout is how long a client may take to open its streams once it
	// is connected; 0 means 30 seconds.
	StreamTimeout time.Duration
}

func (c *Config) complete() error {
	if c.Core == nil || c.Dial == nil || c.Log == nil {
		return errors.New("make the streaming server: Config.Core, Dial and Log must be set")
	}
	if c.IdleTimeout < 0 || c.OpenTimeout < 0 || c.StreamTimeout < 0 {
		return errors.New("make the streaming server: a timeout is negative")
	}
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&c.IdleTimeout, 4*time.Hour)
	set(&c.OpenTimeout, time.Minute)
	set(&c.StreamTimeout, 30*time.Second)
	if c.Address == "" {
		c.Address = "127.0.0.1:0"
	}
	return nil
}

// Server hands out URLs and serves them.
type Server struct {
	cfg      Config
	listener net.Listener
	tokens   *tokens

	mu      sync.Mutex
	ending  bool // no stream may begin any more
	streams sync.WaitGroup
}

// New opens the listener, so that URLs can be made at once. Run serves them.
func New(c Config) (*Server, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("listen for streams on %s: %w", c.Address, err)
	}
	return &Server{cfg: c, listener: l, tokens: newTokens(c.OpenTimeout)}, nil
}

// Run serves streams until ctx ends, then ends them all and returns when the
// last is gone. It closes the listener.
func (s *Server) Run(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{token}", s.serve)
	mux.HandleFunc("/attach/{token}", s.serve)
	mux.HandleFunc("/portforward/{token}", s.serve)
	h := &http.Server{
		Handler:           mux,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { _ = h.Close() })
	defer stop()
	err := h.Serve(s.listener)
	if ctx.Err() == nil {
		return fmt.Errorf("serve streams on %s: %w", s.listener.Addr(), err)
	}
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	s.streams.Wait()
	return nil
}

// begin counts a stream in, unless the server is ending.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ending {
		s.streams.Add(1)
	}
	return !s.ending
}

// ExecURL is where the client finds the stream of a new process.
func (s *Server) ExecURL(r *cri.ExecRequest) (string, error) { return s.url("exec", r) }

// AttachURL is where the client finds the stream of a container.
func (s *Server) AttachURL(r *cri.AttachRequest) (string, error) { return s.url("attach", r) }

// PortForwardURL is where the client finds the stream of a pod's ports.
func (s *Server) PortForwardURL(r *cri.PortForwardRequest) (string, error) {
	return s.url("portforward", r)
}

func (s *Server) url(kind string, r any) (string, error) {
	token, err := s.tokens.put(r)
	if err != nil {
		return "", fmt.Errorf("prepare %s stream: %w", kind, err)
	}
	u := url.URL{Scheme: "http", Host: s.listener.Addr().String(), Path: "/" + kind + "/" + token}
	return u.String(), nil
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if !s.begin() {
		http.Error(w, "the server is ending", http.StatusServiceUnavailable)
		return
	}
	defer s.streams.Done()
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		http.Error(w, "open the stream with GET or POST", http.StatusMethodNotAllowed)
		return
	}
	// A token is taken before anything else is looked at, so that it works once
	// whatever happens.
	req, ok := s.tokens.take(r.PathValue("token"))
	if !ok {
		http.Error(w, "no such stream: its URL works once and for "+s.cfg.OpenTimeout.String(), http.StatusNotFound)
		return
	}
	switch req := req.(type) {
	case *cri.ExecRequest:
		s.serveSession(w, r, wanted{req.GetStdin(), req.GetStdout(), req.GetStderr(), req.GetTty()}, s.execSession(req))
	case *cri.AttachRequest:
		s.serveSession(w, r, wanted{req.GetStdin(), req.GetStdout(), req.GetStderr(), req.GetTty()}, s.attachSession(req))
	case *cri.PortForwardRequest:
		s.servePortForward(w, r, req)
	}
}
