package certificates

import (
	"crypto/x509"
	"io"
	"math"
	"sync/atomic"
	"time"

	"fairlead.run/internal/telemetry"
)

// Metrics tell of the node's certificates under the names of a kubelet. Make them by
// NewMetrics; nil ones count nothing.
type Metrics struct {
	registry       telemetry.Registry
	rotation       *telemetry.Histogram
	client, server certificate
}

// certificate is one that the node has, as it is counted.
type certificate struct {
	ends   atomic.Pointer[time.Time] // nil if there is none
	failed *telemetry.Counter
}

// NewMetrics makes them of a node that has no certificate yet.
func NewMetrics() *Metrics {
	m := &Metrics{}
	r := &m.registry
	m.rotation = r.Histogram("kubelet_certificate_manager_server_rotation_seconds", "How old serving certificates were when others took their place.").
		Within(60, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000) // a minute to four years
	for _, c := range []struct {
		of                 *certificate
		name, ttl, failure string
	}{
		{&m.client, "client", "kubelet_certificate_manager_client_ttl_seconds", "kubelet_certificate_manager_client_expiration_renew_errors"},
		{&m.server, "serving", "kubelet_certificate_manager_server_ttl_seconds", "kubelet_server_expiration_renew_errors"},
	} {
		c.of.failed = r.Counter(c.failure, "Attempts to renew the "+c.name+" certificate that failed.")
		c.of.failed.Add(0) // it is there from the start, as a kubelet's
		r.Gauge(c.ttl, "Seconds until the "+c.name+" certificate ends, less than zero when it has; +Inf without one.", nil, func(tell func(float64, ...string)) {
			tell(c.of.left())
		})
	}
	return m
}

// Write writes them in the text format of Prometheus.
func (m *Metrics) Write(to io.Writer) error { return m.registry.Write(to) }

// Serving is the certificate that the node API has now.
func (m *Metrics) Serving(leaf *x509.Certificate) {
	if m != nil {
		m.server.has(leaf)
	}
}

// Client is that by which the API server knows the node.
func (m *Metrics) Client(leaf *x509.Certificate) {
	if m != nil {
		m.client.has(leaf)
	}
}

// rotated is that a serving certificate has another one in its place.
func (m *Metrics) rotated(old *x509.Certificate) {
	if m != nil && old != nil {
		m.rotation.Observe(time.Since(old.NotBefore).Seconds())
	}
}

// failed counts an attempt to renew one of the two.
func (m *Metrics) failed(serving bool) {
	switch {
	case m == nil:
	case serving:
		m.server.failed.Add(1)
	default:
		m.client.failed.Add(1)
	}
}

func (c *certificate) has(leaf *x509.Certificate) {
	if leaf != nil {
		c.ends.Store(&leaf.NotAfter)
	}
}

// left are the whole seconds until it ends.
func (c *certificate) left() float64 {
	ends := c.ends.Load()
	if ends == nil {
		return math.Inf(1)
	}
	return math.Trunc(time.Until(*ends).Seconds())
}
