// Package tally counts the sandboxes that an agent runs, and its probes, under a kubelet's
// names.
package tally

import (
	"io"
	"time"

	"fairlead.run/internal/telemetry"
)

// Tally is one agent's. Make it by New.
type Tally struct {
	registry  telemetry.Registry
	durations *telemetry.Histogram
	errors    *telemetry.Counter
	Probes    Probes
}

// New makes one that has counted nothing.
func New() *Tally {
	t := &Tally{}
	t.durations = t.registry.Histogram("kubelet_run_podsandbox_duration_seconds", "Time that a sandbox took to run, whether it did or not.", "runtime_handler", "runtime_class")
	t.errors = t.registry.Counter("kubelet_run_podsandbox_errors_total", "Sandboxes that could not be run.", "runtime_handler", "runtime_class")
	return t
}

// Sandbox counts one, with the time that it took to run, or not to.
func (t *Tally) Sandbox(handler, class string, took time.Duration, err error) {
	t.durations.Observe(took.Seconds(), handler, class)
	if err != nil {
		t.errors.Add(1, handler, class)
	}
}

// Write writes what was counted, in the text format of Prometheus.
func (t *Tally) Write(to io.Writer) error { return t.registry.Write(to) }
