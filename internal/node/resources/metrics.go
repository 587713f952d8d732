package resources

import (
	"errors"
	"io"

	"fairlead.run/internal/telemetry"
)

// metrics have the names that a kubelet's have.
type metrics struct {
	registry                telemetry.Registry
	rejections, preemptions *telemetry.Counter
	evictions               *telemetry.Counter
}

func newMetrics() *metrics {
	m := &metrics{}
	m.rejections = m.registry.Counter("kubelet_admission_rejections_total", "Pods that the node has not let in.", "reason")
	m.preemptions = m.registry.Counter("kubelet_preemptions", "Pods that had to make room for a critical one, by the resource that was short.", "preemption_signal")
	m.evictions = m.registry.Counter("kubelet_evictions", "Pods that were evicted, by the signal that was short or the limit that they went past.", "eviction_signal")
	return m
}

// Metrics writes what was counted, in the text format of Prometheus.
func (k *Keeper) Metrics(to io.Writer) error {
	err := k.stats.registry.Write(to)
	if k.cgroups != nil {
		err = errors.Join(err, k.cgroups.Metrics(to))
	}
	return err
}
