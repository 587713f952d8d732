package cri

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// collector takes the daemon's spans, as OpenTelemetry's does.
type collector struct {
	coltrace.UnimplementedTraceServiceServer
	address string

	mu   sync.Mutex
	seen strings.Builder
	all  []*tracev1.Span
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, g := &collector{address: l.Addr().String()}, grpc.NewServer()
	coltrace.RegisterTraceServiceServer(g, c)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-done })
	return c
}

// Export implements coltrace.TraceServiceServer.
func (c *collector) Export(_ context.Context, r *coltrace.ExportTraceServiceRequest) (*coltrace.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen.WriteString(r.String())
	for _, rs := range r.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			c.all = append(c.all, ss.Spans...)
		}
	}
	return &coltrace.ExportTraceServiceResponse{}, nil
}

// spans are those that have arrived.
func (c *collector) spans() []*tracev1.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

// text is everything that has arrived.
func (c *collector) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen.String()
}
