package daemon

import (
	"cmp"
	"fmt"
	"net"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/telemetry"
)

// gauges are what the daemon tells those who scrape it. Everything that has a
// handler is labelled with it, as RuntimeClass names it.
type gauges struct {
	registry    telemetry.Registry
	podStarts   *telemetry.Histogram
	podErrors   *telemetry.Counter
	operations  *telemetry.Histogram
	failures    *telemetry.Counter
	pulls       *telemetry.Histogram
	pullErrors  *telemetry.Counter
	monitorEnds *telemetry.Counter
	// label is the handler's name in labels, "" being the default one; a name that
	// a caller has made up is "unknown".
	label func(handler string) string
}

const (
	byHandler      = "runtime_handler"
	unknownHandler = "unknown"
)

func newGauges() *gauges {
	g := &gauges{label: func(string) string { return unknownHandler }}
	r := &g.registry
	g.podStarts = r.Histogram("fairlead_pod_sandbox_start_seconds", "How long it took to make pods ready for containers (RunPodSandbox).", byHandler)
	g.podErrors = r.Counter("fairlead_pod_sandbox_errors_total", "Pods that could not be made (RunPodSandbox).", byHandler)
	g.operations = r.Histogram("fairlead_operation_seconds", "How long operations on pods and containers took that succeeded.", "operation", byHandler)
	g.failures = r.Counter("fairlead_operation_errors_total", "Operations on pods and containers that failed.", "operation", byHandler)
	g.pulls = r.Histogram("fairlead_image_pull_seconds", "How long those waited who asked for an image to be pulled, where it succeeded.", byHandler)
	g.pullErrors = r.Counter("fairlead_image_pull_errors_total", "Image pulls that failed.", byHandler)
	g.monitorEnds = r.Counter("fairlead_monitor_lost_total", "How often the monitor was away; it is started again if nobody else does it.")
	g.monitorEnds.Add(0) // so that it is told before the first time
	return g
}

// observe adds what is found out when somebody asks.
func (g *gauges) observe(d *Daemon) {
	// Operations end with it, so it may wait for nothing.
	g.label = func(handler string) string { return cmp.Or(d.parts.handlers.NameOf(handler), unknownHandler) }
	r := &g.registry
	r.Gauge("fairlead_handler_ready", "1 if pods can be run on the handler, 0 if not.", []string{byHandler}, func(tell func(float64, ...string)) {
		for _, h := range d.parts.handlers.List() {
			ready := 0.0
			if h.Ready {
				ready = 1
			}
			tell(ready, h.Name)
		}
	})
	r.Gauge("fairlead_operations_in_flight", "Operations on pods, containers and images at this moment.", []string{"kind"}, func(tell func(float64, ...string)) {
		count := map[string]int{}
		for _, op := range operations(d.core, d.parts.images) {
			count[op.Kind]++
		}
		for _, kind := range []string{ops.KindPod, ops.KindContainer, "image"} {
			tell(float64(count[kind]), kind)
		}
	})
	r.Gauge("fairlead_pods", "Pods by state.", []string{"state"}, func(tell func(float64, ...string)) {
		tellStates(tell, d.core.Pods(), func(r *pod.Record, count func(pod.State)) { count(r.State) })
	})
	r.Gauge("fairlead_containers", "Containers by state.", []string{"state"}, func(tell func(float64, ...string)) {
		tellStates(tell, d.core.Pods(), func(r *pod.Record, count func(pod.State)) {
			for _, c := range r.Containers {
				count(c.State)
			}
		})
	})
}

func tellStates(tell func(float64, ...string), pods []*pod.Record, each func(*pod.Record, func(pod.State))) {
	n := map[pod.State]int{}
	for _, r := range pods {
		each(r, func(s pod.State) { n[s]++ })
	}
	for _, s := range []pod.State{pod.Creating, pod.Created, pod.Running, pod.Exited, pod.Unknown} {
		tell(float64(n[s]), string(s))
	}
}

// ended is told of each operation that ended.
func (g *gauges) ended(e ops.Ended) {
	handler, seconds := g.label(e.Handler), e.Took.Seconds()
	if e.Kind == ops.KindImage {
		outcomes{g.pulls, g.pullErrors}.count(e.Err, seconds, handler)
		return
	}
	if e.Verb == ops.Run && e.Kind == ops.KindPod {
		outcomes{g.podStarts, g.podErrors}.count(e.Err, seconds, handler)
	}
	outcomes{g.operations, g.failures}.count(e.Err, seconds, e.Verb+" "+e.Kind, handler)
}

// outcomes are the times of what succeeded, and how often it failed.
type outcomes struct {
	took   *telemetry.Histogram
	failed *telemetry.Counter
}

// count tells the failures where there are none, too: from a line that comes
// with the first one, no rate can tell that there was one.
func (o outcomes) count(err error, seconds float64, labels ...string) {
	if err != nil {
		o.failed.Add(1, labels...)
		return
	}
	o.took.Observe(seconds, labels...)
	o.failed.Add(0, labels...)
}

// openMetrics listens where metrics are told, and is nil if they are not.
func openMetrics(cfg *config.Config) (net.Listener, error) {
	if cfg.Metrics.Address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", cfg.Metrics.Address)
	if err != nil {
		return nil, fmt.Errorf("listen for those who scrape metrics (metrics.address): %w", err)
	}
	return l, nil
}
