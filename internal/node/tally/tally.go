// Package tally counts what an agent runs, and its probes, under a kubelet's names.
package tally

import (
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/telemetry"
)

// Tally is one agent's. Make it by New.
type Tally struct {
	registry  telemetry.Registry
	durations *telemetry.Histogram
	errors    *telemetry.Counter
	Probes    Probes
}

// New makes one that has counted nothing.
func New() *Tally {
	t := &Tally{}
	t.durations = t.registry.Histogram("kubelet_run_podsandbox_duration_seconds", "Time that a sandbox took to run, whether it did or not.", "runtime_handler", "runtime_class")
	t.errors = t.registry.Counter("kubelet_run_podsandbox_errors_total", "Sandboxes that could not be run.", "runtime_handler", "runtime_class")
	return t
}

// Watch has what is asked for show the node, and how many of its pods and containers run.
func (t *Tally) Watch(node string, pods func() []*corev1.Pod) {
	t.registry.Gauge("kubelet_node_name", "The node's name. The count is always 1.", []string{"node"}, func(tell func(float64, ...string)) { tell(1, node) })
	t.registry.Gauge("kubelet_running_pods", "Pods whose sandbox runs.", nil, func(tell func(float64, ...string)) {
		n := 0
		for _, p := range pods() {
			if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue
			}) {
				n++
			}
		}
		tell(float64(n))
	})
	t.registry.Gauge("kubelet_running_containers", "Containers by the state of their latest attempt.", []string{"container_state"}, func(tell func(float64, ...string)) {
		running, exited := 0, 0
		for _, p := range pods() {
			for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses) {
				switch {
				case c.State.Running != nil:
					running++
				case c.ContainerID != "":
					exited++
				}
			}
		}
		tell(float64(exited), "exited")
		tell(float64(running), "running")
	})
}

// Sandbox counts one, with the time that it took to run, or not to.
func (t *Tally) Sandbox(handler, class string, took time.Duration, err error) {
	t.durations.Observe(took.Seconds(), handler, class)
	if err != nil {
		t.errors.Add(1, handler, class)
	}
}

// Write writes what was counted, in the text format of Prometheus.
func (t *Tally) Write(to io.Writer) error { return t.registry.Write(to) }
