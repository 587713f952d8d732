package census

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/telemetry"
)

// freshFor is how long a census holds: who scrapes more often gets the same again.
const freshFor = 15 * time.Second

// failureReasons are those of unscheduled pods that are failures.
var failureReasons = []string{unsupported, shut, full, unfit}

// Census counts when it is asked for metrics, and from then on for 15 seconds not
// again.
type Census struct {
	cache    *cluster.Cache
	tally    *tally
	failures *telemetry.Counter

	mu    sync.Mutex // scrapes wait for each other's census, and nobody else
	last  *counts
	named map[string]bool // classes that have failures by name
}

// New must be called before the cache runs.
func New(cache *cluster.Cache) *Census {
	c := &Census{cache: cache, tally: newTally(), named: map[string]bool{}}
	cache.Pods.OnChange(c.tally.changed)
	return c
}

type tell = func(value float64, labels ...string)

// Register adds the metrics to those of a program. Every replica tells the same of
// the cluster, but for what it has counted itself since it began.
func (c *Census) Register(r *telemetry.Registry) {
	c.registerClasses(r)
	c.registerNodes(r)
	r.Gauge("fairlead_cluster_census_age_seconds", "Time since the cluster was counted; it is counted again after 15 seconds.", nil, c.telling(func(n *counts, tell tell) {
		tell(time.Since(n.taken).Seconds())
	}))
	r.Gauge("fairlead_cluster_census_duration_seconds", "How long it took to count the cluster.", nil, c.telling(func(n *counts, tell tell) {
		tell(n.took.Seconds())
	}))
	// The last: the families above have taken the census that it counts by.
	c.failures = r.Counter("fairlead_cluster_class_scheduling_failures_total", "Pods that a scheduler found no node for, by class and reason; each once until it has got a node.", "class", "reason")
}

func (c *Census) registerClasses(r *telemetry.Registry) {
	r.Gauge("fairlead_cluster_runtimeclasses", "RuntimeClasses by handler and isolation.", []string{"runtime_handler", "isolation"}, c.telling(func(n *counts, tell tell) {
		for _, k := range slices.SortedFunc(maps.Keys(n.classes), ofHandler.compare) {
			tell(float64(n.classes[k]), k.handler, k.isolation)
		}
	}))
	r.Gauge("fairlead_cluster_runtimeclasses_default", "RuntimeClasses that say that they are the cluster's default.", nil, c.telling(func(n *counts, tell tell) {
		tell(float64(n.defaults))
	}))
	r.Gauge("fairlead_cluster_runtimeclasses_without_nodes", "RuntimeClasses that no node supports, by whether pods use them.", []string{"used"}, c.telling(func(n *counts, tell tell) {
		tell(float64(n.homeless[false]), "false")
		tell(float64(n.homeless[true]), "true")
	}))
	r.Gauge("fairlead_cluster_class_nodes", "Nodes that have the labels that a class selects, by how they stand to it.", []string{"class", "state"}, c.telling(func(n *counts, tell tell) {
		for _, class := range slices.Sorted(maps.Keys(n.standings)) {
			for s, nodes := range n.standings[class] {
				tell(float64(nodes), class, stances[s])
			}
		}
	}))
	r.Gauge("fairlead_cluster_class_pods", "Pods that have not ended, by class and phase.", []string{"class", "phase"}, c.telling(func(n *counts, tell tell) { tellClasses(n.pods, tell) }))
	r.Gauge("fairlead_cluster_class_unscheduled_pods", "Pods without a node, by class and reason.", []string{"class", "reason"}, c.telling(func(n *counts, tell tell) { tellClasses(n.unscheduled, tell) }))
	r.Gauge("fairlead_cluster_class_stranded_pods", "Pods that wait on a node that does not support their class.", []string{"class"}, c.telling(func(n *counts, tell tell) {
		for _, class := range slices.Sorted(maps.Keys(n.stranded)) {
			tell(float64(n.stranded[class]), class)
		}
	}))
}

func (c *Census) registerNodes(r *telemetry.Registry) {
	r.Gauge("fairlead_cluster_nodes", "Nodes by the number of handlers that work there.", []string{"handlers"}, c.telling(func(n *counts, tell tell) {
		for _, handlers := range slices.Sorted(maps.Keys(n.nodes)) {
			tell(float64(n.nodes[handlers]), handlers)
		}
	}))
	r.Gauge("fairlead_cluster_handler_nodes", "Nodes by what they say of a handler.", []string{"runtime_handler", "state"}, c.telling(func(n *counts, tell tell) {
		for _, handler := range slices.Sorted(maps.Keys(n.handlers)) {
			for s, nodes := range n.handlers[handler] {
				tell(float64(nodes), handler, sayings[s])
			}
		}
	}))
	r.Gauge("fairlead_cluster_handler_classes", "RuntimeClasses that name a handler.", []string{"runtime_handler"}, c.telling(func(n *counts, tell tell) {
		for _, handler := range slices.Sorted(maps.Keys(n.naming)) {
			tell(float64(n.naming[handler]), handler)
		}
	}))
	r.Gauge("fairlead_cluster_handlers_missing", "Handlers that classes name, and that no node can have.", nil, c.telling(func(n *counts, tell tell) {
		tell(float64(n.missing))
	}))
}

func (a ofHandler) compare(b ofHandler) int {
	return cmp.Or(cmp.Compare(a.handler, b.handler), cmp.Compare(a.isolation, b.isolation))
}

func (a ofClass) compare(b ofClass) int {
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.what, b.what))
}

func tellClasses(n map[ofClass]int, tell tell) {
	for _, k := range slices.SortedFunc(maps.Keys(n), ofClass.compare) {
		tell(float64(n[k]), k.class, k.what)
	}
}

// telling tells of the last census. Before the caches are filled there is none:
// zeros would be alarms.
func (c *Census) telling(what func(n *counts, tell tell)) func(tell) {
	return func(tell tell) {
		if n := c.fresh(); n != nil {
			what(n, tell)
		}
	}
}

// fresh is a census that holds, or nil. No lock of the caches is held while it is
// taken.
func (c *Census) fresh() *counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil && time.Since(c.last.taken) < freshFor || !c.cache.Synced() {
		return c.last
	}
	began := time.Now()
	pods, failed := c.tally.take()
	s := seen{c.cache.Classes.List(), c.cache.Nodes.List(), pods}
	x := newIndex(s)
	c.last = count(s, x)
	c.countFailures(failed, x)
	c.last.taken = time.Now()
	c.last.took = c.last.taken.Sub(began)
	return c.last
}

// countFailures counts by the reasons that hold now. Classes with pods begin at
// zero, as a rate is made of two numbers.
func (c *Census) countFailures(failed map[failure]int, x *index) {
	labels := []string{NoClass, MissingClass, Other}
	for _, class := range slices.Sorted(maps.Keys(c.last.standings)) {
		if x.used[class] {
			labels = append(labels, c.failureLabel(class, x))
		}
	}
	for _, label := range labels {
		for _, reason := range failureReasons {
			c.failures.Add(0, label, reason)
		}
	}
	for f, n := range failed {
		c.failures.Add(float64(n), c.failureLabel(f.class, x), x.reason(f.class, f.verdict))
	}
}

// failureLabel is what stands for a class for as long as the program runs: a
// counter must not become less when others come before it.
func (c *Census) failureLabel(class string, x *index) string {
	switch label := x.label(class); {
	case label == NoClass || label == MissingClass:
		return label
	case c.named[class]:
	case len(c.named) == mostClasses:
		return Other
	}
	c.named[class] = true
	return class
}
