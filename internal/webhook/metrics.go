package webhook

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	nodev1 "k8s.io/api/node/v1"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/telemetry"
	"fairlead.run/internal/webhook/census"
	"fairlead.run/internal/webhook/review"
	"fairlead.run/pkg/runtimeclass"
)

// What stands in a label for a class that has no name of its own there.
const (
	classNone    = census.NoClass      // the refusal is about no class
	classUnknown = census.MissingClass // it does not exist: names of that kind are anybody's
	classOther   = census.Other        // too many classes for a label
)

// mostClassSeries bounds reasons times classes; a family has room for 512.
const mostClassSeries = 400

// served is what is measured of one request.
type served struct {
	webhook, operation string
	refused            error
	failed             bool // it got no answer
}

// metrics are what the webhook tells of itself.
type metrics struct {
	registry   telemetry.Registry
	classes    *cluster.Store[*nodev1.RuntimeClass]
	requests   *telemetry.Counter
	rejections *telemetry.Counter
	seconds    *telemetry.Histogram
	panics     *telemetry.Counter

	inFlight atomic.Int64

	mu   sync.Mutex
	seen map[[2]string]bool // reasons and classes that have a series
}

func newMetrics(k *known, expires func() time.Time) *metrics {
	m := &metrics{classes: k.cache.Classes, seen: map[[2]string]bool{}}
	r := &m.registry
	m.requests = r.Counter("fairlead_webhook_requests_total", "Requests by webhook, operation and result: allowed, refused, or failed without an answer.", "webhook", "operation", "result")
	m.rejections = r.Counter("fairlead_webhook_rejections_total", "Refusals by webhook, reason and class.", "webhook", "reason", "class")
	m.seconds = r.Histogram("fairlead_webhook_request_duration_seconds", "Time from the head of a request to its answer.", "webhook")
	m.panics = r.Counter("fairlead_webhook_panics_total", "Requests at which the program failed; each is in the log.")
	m.panics.Add(0)
	r.Gauge("fairlead_webhook_requests_in_flight", "Requests that have begun and not ended.", nil, func(tell func(float64, ...string)) {
		tell(float64(m.inFlight.Load()))
	})
	r.Gauge("fairlead_webhook_certificate_expiry_timestamp_seconds", "When the serving certificate ends.", nil, func(tell func(float64, ...string)) {
		if end := expires(); !end.IsZero() {
			tell(float64(end.Unix()))
		}
	})
	m.cacheGauges(k)
	return m
}

func (m *metrics) cacheGauges(k *known) {
	each := func(value func(s cluster.Status) (float64, bool)) func(tell func(float64, ...string)) {
		return func(tell func(float64, ...string)) {
			for _, s := range k.cache.Status() {
				if v, ok := value(s); ok {
					tell(v, s.Resource)
				}
			}
		}
	}
	r, by := &m.registry, []string{"resource"}
	r.Gauge("fairlead_webhook_cache_age_seconds", "Time since the API server last told anything of the resource, be it that nothing is new.", by, each(func(s cluster.Status) (float64, bool) {
		return time.Since(s.Heard).Seconds(), !s.Heard.IsZero()
	}))
	r.Gauge("fairlead_webhook_cache_objects", "Objects in the cache.", by, each(func(s cluster.Status) (float64, bool) { return float64(s.Objects), true }))
	r.Gauge("fairlead_webhook_cache_synced", "1 if the resource has been read.", by, each(func(s cluster.Status) (float64, bool) { return one(s.Synced), true }))
	r.Gauge("fairlead_webhook_cache_absent", "1 if the API server does not have the resource, as without the CRD.", by, each(func(s cluster.Status) (float64, bool) { return one(s.Absent), true }))
	r.Gauge("fairlead_webhook_policies_unusable", "Policies that cannot be used, so that an enforced one admits no pods.", nil, func(tell func(float64, ...string)) {
		tell(float64(k.compiled().broken))
	})
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// observe counts a request that has ended.
func (m *metrics) observe(s served, took time.Duration) {
	result := "allowed"
	switch {
	case s.failed:
		result = "failed"
	case s.refused != nil:
		result = "refused"
		reason, class := m.reasonOf(s.refused)
		m.rejections.Add(1, s.webhook, reason, class)
	}
	m.requests.Add(1, s.webhook, s.operation, result)
	m.seconds.Observe(took.Seconds(), s.webhook)
}

// reasonOf is the labels of a refusal.
func (m *metrics) reasonOf(why error) (reason, class string) {
	var rejection *runtimeclass.Rejection
	if !errors.As(why, &rejection) {
		var faults review.Faults
		if errors.As(why, &faults) {
			return "Invalid", classNone
		}
		return "Other", classNone
	}
	return string(rejection.Reason), m.classLabel(string(rejection.Reason), rejection.Class)
}

// classLabel is the name of a class that exists, as long as there is room for it.
func (m *metrics) classLabel(reason, class string) string {
	switch {
	case class == "":
		return classNone
	case m.classes.Get(class) == nil:
		return classUnknown
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := [2]string{reason, class}
	if !m.seen[key] {
		if len(m.seen) >= mostClassSeries {
			return classOther
		}
		m.seen[key] = true
	}
	return class
}
