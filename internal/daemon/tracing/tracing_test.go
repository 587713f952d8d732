package tracing

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"fairlead.run/internal/lifecycle/ops"
)

func started() ops.Ended {
	return ops.Ended{
		About:   ops.About{Verb: ops.Run, Kind: ops.KindPod, Name: "default/web", Pod: "p1"},
		Handler: "crun", Began: time.Unix(1000, 0), Took: 8 * time.Millisecond,
		Steps: []ops.Step{{Stage: "attach network", MS: 6}, {Stage: "commit", MS: 2}},
	}
}

func TestSpans(t *testing.T) {
	to := tracetest.NewInMemoryExporter()
	s := newSender(sdktrace.WithSyncer(to), "1.2.3")
	e := started()
	e.Parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	e.Err = errors.New("no addresses")
	s.Ended(e)
	got := to.GetSpans()
	if len(got) != 3 {
		t.Fatalf("%d spans", len(got))
	}
	whole := got[2]
	if whole.Name != "run pod" || whole.Parent.SpanID().String() != "b7ad6b7169203331" || whole.Status.Code != codes.Error ||
		!whole.StartTime.Equal(e.Began) || whole.EndTime.Sub(whole.StartTime) != e.Took {
		t.Errorf("%+v", whole)
	}
	at := e.Began
	for i, step := range e.Steps {
		part := got[i]
		if part.Name != step.Stage || part.Parent.SpanID() != whole.SpanContext.SpanID() || !part.StartTime.Equal(at) ||
			part.SpanContext.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("%+v", part)
		}
		at = part.EndTime
	}
	to.Reset()
	e.Parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	if s.Ended(e); len(to.GetSpans()) != 0 {
		t.Error("the caller does not want spans")
	}
	e.Parent = "nonsense"
	if s.Ended(e); len(to.GetSpans()) != 3 || to.GetSpans()[2].Parent.IsValid() {
		t.Error("a parent that is none")
	}
	(*Sender)(nil).Ended(e)
}

type collector struct {
	coltrace.UnimplementedTraceServiceServer
	mu    sync.Mutex
	names []string
}

func (c *collector) Export(_ context.Context, r *coltrace.ExportTraceServiceRequest) (*coltrace.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range r.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				c.names = append(c.names, s.Name)
			}
		}
	}
	return &coltrace.ExportTraceServiceResponse{}, nil
}

func TestACollectorGetsThem(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, g := &collector{}, grpc.NewServer()
	coltrace.RegisterTraceServiceServer(g, c)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-done })
	s, err := New(t.Context(), l.Addr().String(), "1.2.3", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.Ended(started())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.names) != 3 {
		t.Errorf("the collector got %q", c.names)
	}
}
