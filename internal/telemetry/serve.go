package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// How long a scrape may take, and one that is served when the daemon ends.
const (
	scrapeTime = 10 * time.Second
	endTime    = time.Second
)

// Serve tells the families at /metrics until ctx ends. It closes l.
func Serve(ctx context.Context, l net.Listener, r *Registry) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_ = r.Write(w) // only the one who asks is gone
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: scrapeTime, WriteTimeout: scrapeTime, IdleTimeout: time.Minute}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		last, cancel := context.WithTimeout(context.Background(), endTime)
		defer cancel()
		if s.Shutdown(last) != nil {
			_ = s.Close()
		}
	})
	err := s.Serve(l)
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve metrics on %s: %w", l.Addr(), err)
}
