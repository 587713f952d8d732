package endpoint

import (
	"context"
	"io"
	"path"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc"

	"fairlead.run/internal/telemetry"
)

// Calls counts the calls of a runtime, how long they take and how many fail, under the
// names and by the operations of a kubelet.
type Calls struct {
	registry      telemetry.Registry
	total, failed *telemetry.Counter
	took          *telemetry.Histogram
}

// NewCalls makes one that has counted nothing.
func NewCalls() *Calls {
	c := &Calls{}
	c.total = c.registry.Counter("kubelet_runtime_operations_total", "Calls of the runtime.", "operation_type")
	c.took = c.registry.Histogram("kubelet_runtime_operations_duration_seconds", "How long calls of the runtime took.", "operation_type")
	c.failed = c.registry.Counter("kubelet_runtime_operations_errors_total", "Calls of the runtime that failed.", "operation_type")
	return c
}

// Write writes them in the text format of Prometheus.
func (c *Calls) Write(to io.Writer) error { return c.registry.Write(to) }

// Over is a connection whose calls are counted. Streams, which live long, are not.
func (c *Calls) Over(conn grpc.ClientConnInterface) grpc.ClientConnInterface {
	return counted{conn, c}
}

type counted struct {
	grpc.ClientConnInterface
	calls *Calls
}

// Invoke implements grpc.ClientConnInterface.
func (c counted) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	began := time.Now()
	err := c.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	name := operation(method)
	c.calls.total.Add(1, name)
	c.calls.took.Observe(time.Since(began).Seconds(), name)
	if err != nil {
		c.calls.failed.Add(1, name)
	}
	return err
}

// operation is what a kubelet calls a method of the CRI: create_container, run_podsandbox.
func operation(method string) string {
	name := path.Base(method)
	if name != "ListPodSandboxMetrics" { // list_pod_sandbox_metrics
		name = strings.Replace(name, "PodSandbox", "Podsandbox", 1)
	}
	var out strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			out.WriteByte('_')
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}
