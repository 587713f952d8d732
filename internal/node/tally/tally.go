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
	pods      outcome
	// Containers that were started, by a kubelet's container_type, and those that could not be.
	containers      outcome
	started, worked *telemetry.Histogram
	relists         relists
	Probes          Probes
}

// outcome is how often something was tried, and how often in vain.
type outcome struct{ tried, failed *telemetry.Counter }

// relists are the lists of everything that a runtime has: how long they took, and the time
// from one to the next.
type relists struct{ took, apart *telemetry.Histogram }

// New makes one that has counted nothing.
func New() *Tally {
	t := &Tally{}
	t.durations = t.registry.Histogram("kubelet_run_podsandbox_duration_seconds", "Time that a sandbox took to run, whether it did or not.", "runtime_handler", "runtime_class")
	t.errors = t.registry.Counter("kubelet_run_podsandbox_errors_total", "Sandboxes that could not be run.", "runtime_handler", "runtime_class")
	t.pods = outcome{
		t.registry.Counter("kubelet_started_pods_total", "Sandboxes of pods that were to be run."),
		t.registry.Counter("kubelet_started_pods_errors_total", "Sandboxes of pods that could not be run."),
	}
	t.containers = outcome{
		t.registry.Counter("kubelet_started_containers_total", "Containers that were to be started.", "container_type"),
		t.registry.Counter("kubelet_started_containers_errors_total", "Containers that could not be started.", "container_type", "code"),
	}
	t.started = t.registry.Histogram("kubelet_pod_start_duration_seconds", "Time from when the node has first seen a pod until it runs.")
	t.worked = t.registry.Histogram("kubelet_pod_worker_duration_seconds", "Time that a look at a pod took, with what was done for it.", "operation_type")
	t.relists = relists{
		t.registry.Histogram("kubelet_pleg_relist_duration_seconds", "How long it took to list everything that the runtime has.").Within(plain...),
		t.registry.Histogram("kubelet_pleg_relist_interval_seconds", "The time from one list of everything that the runtime has to the next.").Within(plain...),
	}
	return t
}

// plain are the bounds that Prometheus has by default.
var plain = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

// Listed counts a list of all that the runtime has: when it was asked for, and when the one
// before was, or zero.
func (t *Tally) Listed(at, before time.Time) {
	t.relists.took.Observe(time.Since(at).Seconds())
	if !before.IsZero() {
		t.relists.apart.Observe(at.Sub(before).Seconds())
	}
}

// Pod counts one that runs now, since the node has seen it first.
func (t *Tally) Pod(since time.Time) { t.started.Observe(time.Since(since).Seconds()) }

// Worked counts a look at a pod: Create is the first one, Kill one when it ends, Sync any
// other.
func (t *Tally) Worked(operation string, took time.Duration) {
	t.worked.Observe(took.Seconds(), operation)
}

// The operations of workers, under a kubelet's names.
const (
	Create = "create"
	Sync   = "sync"
	Kill   = "kill"
)

// Container counts one of a pod that was to be started; code is the reason why it was not,
// or empty.
func (t *Tally) Container(pod *corev1.Pod, name, code string) {
	kind := "container"
	if slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name }) {
		kind = "init_container"
	} else if slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name }) {
		kind = "ephemeral_container"
	}
	t.containers.tried.Add(1, kind)
	if code != "" {
		t.containers.failed.Add(1, kind, code)
	}
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
	t.pods.tried.Add(1)
	if err != nil {
		t.pods.failed.Add(1)
		t.errors.Add(1, handler, class)
	}
}

// Write writes what was counted, in the text format of Prometheus.
func (t *Tally) Write(to io.Writer) error { return t.registry.Write(to) }
