package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	headerTime = 10 * time.Second
	idleTime   = 90 * time.Second
	// maxRequestHeader is as much as a kubelet takes, and the API server: a whole script may be the
	// argument of a command, which is a part of the URL.
	maxRequestHeader = 1 << 20
	// endTime is how long short requests may go on when the server ends.
	endTime = 2 * time.Second
)

// Serve serves on l until ctx ends, with TLS if there is a configuration for it.
// It closes l. Streams end with ctx; Serve returns when all have.
func (s *Server) Serve(ctx context.Context, l net.Listener, conf *tls.Config) error {
	return s.serve(ctx, l, conf, s)
}

// ServeHealthz serves Healthz on l, without TLS, until ctx ends. It closes l.
func (s *Server) ServeHealthz(ctx context.Context, l net.Listener) error {
	return s.serve(ctx, l, nil, s.Healthz())
}

func (s *Server) serve(ctx context.Context, l net.Listener, conf *tls.Config, handler http.Handler) error {
	streams, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var requests inFlight
	h := &http.Server{
		Handler: requests.count(handler), TLSConfig: conf, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxRequestHeader,
		BaseContext: func(net.Listener) context.Context { return streams },
		ErrorLog:    slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		end() // so that streams do not keep the short ones from ending
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer cancel()
		if h.Shutdown(last) != nil {
			_ = h.Close()
		}
	})
	var err error
	if conf != nil {
		err = h.ServeTLS(l, "", "")
	} else {
		err = h.Serve(l)
	}
	if !stop() {
		<-ended
	}
	end()
	requests.wait() // hijacked connections are nobody's but ours
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the node API on %s: %w", l.Addr(), err)
}

// inFlight are the requests of a listener.
type inFlight struct {
	mu     sync.Mutex
	ending bool // none may begin any more
	all    sync.WaitGroup
}

func (f *inFlight) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ending {
		f.all.Add(1)
	}
	return !f.ending
}

func (f *inFlight) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !f.begin() {
			http.Error(w, "the node API is ending", http.StatusServiceUnavailable)
			return
		}
		defer f.all.Done()
		next.ServeHTTP(w, r)
	})
}

func (f *inFlight) wait() {
	f.mu.Lock()
	f.ending = true
	f.mu.Unlock()
	f.all.Wait()
}
