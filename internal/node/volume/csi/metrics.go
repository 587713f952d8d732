package csi

import (
	"io"
	"time"

	"fairlead.run/internal/telemetry"
)

// metrics have the names, words and bounds that a kubelet's have.
type metrics struct {
	registry telemetry.Registry
	took     *telemetry.Histogram
}

func newMetrics() *metrics {
	m := &metrics{}
	m.took = m.registry.Histogram("storage_operation_duration_seconds", "How long CSI drivers took over mounts and unmounts.", "volume_plugin", "operation_name", "status", "migrated").
		Within(.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600)
	return m
}

// The operations on volumes, under a kubelet's names.
const (
	mounts   = "volume_mount"
	unmounts = "volume_unmount"
	unstages = "unmount_device"
)

// timed does an operation, and counts it. No volume is migrated: those of the kinds
// that a kubelet has drivers mount in their place are refused.
func (m *metrics) timed(driver, operation string, do func() error) error {
	began, status := time.Now(), "success"
	err := do()
	if err != nil {
		status = "fail-unknown"
	}
	m.took.Observe(time.Since(began).Seconds(), "kubernetes.io/csi:"+driver, operation, status, "false")
	return err
}

// Metrics writes what was counted, in the text format of Prometheus.
func (c *Client) Metrics(to io.Writer) error { return c.stats.registry.Write(to) }
