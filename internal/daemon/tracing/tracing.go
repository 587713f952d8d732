// Package tracing sends a span for each operation on a pod or container, and one
// for each of its stages, to an OpenTelemetry collector.
//
// Spans are made when an operation has ended, from the times that the ledger of
// operations has noted anyway. So it costs an operation nothing, and a daemon
// without a collector next to nothing: no provider is made.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"fairlead.run/internal/lifecycle/ops"
)

// flushTime is how long the last spans may take at the end of the daemon.
const flushTime = 2 * time.Second

// Sender sends spans. A nil one sends none.
type Sender struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// New makes a sender to the collector at endpoint, "host:port" with OTLP over
// gRPC and without encryption. It does not wait for the collector: spans that do
// not get there are dropped, with a warning.
func New(ctx context.Context, endpoint, version string, log *slog.Logger) (*Sender, error) {
	e, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(endpoint), otlptracegrpc.WithInsecure())
	if err != nil {
		return nil, fmt.Errorf("send traces to %s (tracing.endpoint): %w", endpoint, err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces are lost", "endpoint", endpoint, "error", err) }))
	return newSender(sdktrace.WithBatcher(e), version), nil
}

func newSender(to sdktrace.TracerProviderOption, version string) *Sender {
	p := sdktrace.NewTracerProvider(to,
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "fairlead"), attribute.String("service.version", version))))
	return &Sender{provider: p, tracer: p.Tracer("fairlead.run")}
}

// Ended sends the spans of an operation. The caller's span is their parent where
// it named one, and decides whether they are sent at all.
func (s *Sender) Ended(e ops.Ended) {
	if s == nil {
		return
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": e.Parent})
	ctx, whole := s.tracer.Start(ctx, e.Verb+" "+e.Kind, trace.WithTimestamp(e.Began), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(
			attribute.String("fairlead.object", e.Name),
			attribute.String("fairlead.pod.id", string(e.Pod)),
			attribute.String("fairlead.container.id", string(e.Container)),
			attribute.String("fairlead.runtime_handler", e.Handler),
		))
	at := e.Began
	for _, step := range e.Steps {
		_, part := s.tracer.Start(ctx, step.Stage, trace.WithTimestamp(at))
		at = at.Add(time.Duration(step.MS * float64(time.Millisecond)))
		part.End(trace.WithTimestamp(at))
	}
	if e.Err != nil {
		whole.SetStatus(codes.Error, e.Err.Error())
	}
	whole.End(trace.WithTimestamp(e.Began.Add(e.Took)))
}

// Close sends what was not sent yet.
func (s *Sender) Close() error {
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	if err := s.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last traces: %w", err)
	}
	return nil
}
