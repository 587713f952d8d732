package telemetry

import (
	"errors"
	"fmt"
	"io"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
)

// Process returns what writes how this process is, under the names that dashboards know
// from every program with a client of Prometheus: go_* and process_*.
func Process() func(io.Writer) error {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return func(to io.Writer) error {
		families, err := r.Gather() // what there is, beside the error
		for _, f := range families {
			if _, failed := expfmt.MetricFamilyToText(to, f); failed != nil {
				return errors.Join(err, fmt.Errorf("write %s: %w", f.GetName(), failed))
			}
		}
		return err
	}
}
