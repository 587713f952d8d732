package agent

import (
	"io"
	"time"

	"fairlead.run/internal/telemetry"
)

// metrics are the agent's own.
type metrics struct {
	registry  telemetry.Registry
	durations *telemetry.Histogram
	errors    *telemetry.Counter
}

func newMetrics() *metrics {
	m := &metrics{}
	m.durations = m.registry.Histogram("kubelet_run_podsandbox_duration_seconds", "Time that a sandbox took to run, whether it did or not.", "runtime_handler", "runtime_class")
	m.errors = m.registry.Counter("kubelet_run_podsandbox_errors_total", "Sandboxes that could not be run.", "runtime_handler", "runtime_class")
	return m
}

func (m *metrics) sandbox(p Placement, took time.Duration, err error) {
	m.durations.Observe(took.Seconds(), p.Handler, p.Class)
	if err != nil {
		m.errors.Add(1, p.Handler, p.Class)
	}
}

// Metrics writes what the agent has counted, in the text format of Prometheus.
func (a *Agent) Metrics(to io.Writer) error { return a.stats.registry.Write(to) }
