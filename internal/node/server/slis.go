package server

import (
	"io"
	"net/http"
	"sync"

	"fairlead.run/internal/telemetry"
)

// slis are how checks of health went, under the names that all parts of Kubernetes have for it
// (KEP-3466). They change when somebody asks for health, and not by themselves.
type slis struct {
	registry telemetry.Registry
	total    *telemetry.Counter

	mu   sync.Mutex
	last map[string]float64 // by the name of the check: 1 is well
}

// healthzType is what the checks are asked for.
const healthzType = "healthz"

func newSLIs() *slis {
	s := &slis{last: map[string]float64{}}
	s.registry.Gauge("kubernetes_healthcheck", "How the check of health went that was made last: 1 is well.", []string{"name", "type"}, func(tell func(float64, ...string)) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for name, well := range s.last {
			tell(well, name, healthzType)
		}
	})
	s.total = s.registry.Counter("kubernetes_healthchecks_total", "Checks of health that were made.", "name", "status", "type")
	return s
}

func (s *slis) observe(check string, err error) {
	status, well := "success", 1.0
	if err != nil {
		status, well = "error", 0
	}
	s.total.Add(1, check, status, healthzType)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[check] = well
}

func (s *slis) write(_ *http.Request, w io.Writer) error { return s.registry.Write(w) }
