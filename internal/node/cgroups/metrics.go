package cgroups

import (
	"io"
	"time"

	"fairlead.run/internal/telemetry"
)

// The operations on cgroups, under a kubelet's names.
const (
	create  = "create"
	update  = "update"
	destroy = "destroy"
)

// metrics have the names, words and bounds that a kubelet's have.
type metrics struct {
	registry telemetry.Registry
	took     *telemetry.Histogram
}

func newMetrics() *metrics {
	m := &metrics{}
	m.took = m.registry.Histogram("kubelet_cgroup_manager_duration_seconds", "How long it took to make, change and remove cgroups of pods.", "operation_type").
		Within(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
	return m
}

// done counts an operation that has ended, well or not.
func (m *metrics) done(operation string, began time.Time) {
	m.took.Observe(time.Since(began).Seconds(), operation)
}

// Metrics writes what was counted, in the text format of Prometheus.
func (m *Manager) Metrics(to io.Writer) error { return m.stats.registry.Write(to) }
