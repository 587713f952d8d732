package images

import (
	"io"
	"time"

	"fairlead.run/internal/telemetry"
)

// sizes are a kubelet's names for images that are larger than so many bytes, from large to small.
var sizes = []struct {
	above uint64
	name  string
}{
	{100 << 30, "GT100GB"},
	{60 << 30, "60GB-100GB"},
	{40 << 30, "40GB-60GB"},
	{30 << 30, "30GB-40GB"},
	{20 << 30, "20GB-30GB"},
	{10 << 30, "10GB-20GB"},
	{5 << 30, "5GB-10GB"},
	{1 << 30, "1GB-5GB"},
	{500 << 20, "500MB-1GB"},
	{100 << 20, "100MB-500MB"},
	{10 << 20, "10MB-100MB"},
	{0, "0-10MB"},
}

func sizeName(bytes uint64) string {
	for _, s := range sizes {
		if bytes > s.above {
			return s.name
		}
	}
	return "N/A"
}

// metrics have the names, words and bounds that a kubelet's have.
type metrics struct {
	registry telemetry.Registry
	pulls    *telemetry.Histogram
}

func newMetrics() *metrics {
	m := &metrics{}
	m.pulls = m.registry.Histogram("kubelet_image_pull_duration_seconds", "How long pods waited for an image that was pulled, by its size.", "image_size_in_bytes").
		Within(1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600)
	return m
}

// pulled counts a pod's pull that has gone well, with the time that it has waited for others.
func (m *metrics) pulled(bytes uint64, began time.Time) {
	m.pulls.Observe(time.Since(began).Truncate(time.Millisecond).Seconds(), sizeName(bytes))
}

// Metrics writes what was counted, in the text format of Prometheus.
func (m *Manager) Metrics(to io.Writer) error { return m.stats.registry.Write(to) }
