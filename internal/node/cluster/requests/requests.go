// Package requests counts the requests that a program makes of API servers, under the names that
// dashboards and alerts know from all programs with a client of Kubernetes. It makes none.
package requests

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"fairlead.run/internal/telemetry"
)

// failed is the code of a request without an answer.
const failed = "<error>"

// Counter counts. Make it by New.
type Counter struct {
	registry telemetry.Registry
	total    *telemetry.Counter
	took     *telemetry.Histogram
}

// New makes one that has counted nothing.
func New() *Counter {
	c := &Counter{}
	c.total = c.registry.Counter("rest_client_requests_total", "Requests of API servers.", "code", "method", "host")
	c.took = c.registry.Histogram("rest_client_request_duration_seconds", "How long requests of API servers took until the answer began; watches are left out.", "verb", "host").
		Within(0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)
	return c
}

// Write writes them in the text format of Prometheus.
func (c *Counter) Write(to io.Writer) error { return c.registry.Write(to) }

// Over counts what goes through a transport, each attempt for itself.
func (c *Counter) Over(next http.RoundTripper) http.RoundTripper { return counted{next, c} }

type counted struct {
	next http.RoundTripper
	*Counter
}

// WrappedRoundTripper has the client of Kubernetes find what it has to close.
func (c counted) WrappedRoundTripper() http.RoundTripper { return c.next }

// RoundTrip implements http.RoundTripper.
func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	answer, err := c.next.RoundTrip(r)
	code := failed
	if err == nil {
		code = strconv.Itoa(answer.StatusCode)
	}
	c.total.Add(1, code, r.Method, r.URL.Host)
	if !r.URL.Query().Has("watch") {
		c.took.Observe(time.Since(began).Seconds(), r.Method, r.URL.Host)
	}
	return answer, err
}
