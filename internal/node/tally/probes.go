package tally

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Probe is one of a container. All of it is of the API's making, which allows no character
// that would have to be escaped.
type Probe struct{ Namespace, Pod, UID, Container, Type string }

func (p Probe) compare(o Probe) int {
	return cmp.Or(cmp.Compare(p.Namespace, o.Namespace), cmp.Compare(p.Pod, o.Pod), cmp.Compare(p.UID, o.UID), cmp.Compare(p.Container, o.Container), cmp.Compare(p.Type, o.Type))
}

// The results of probes.
const (
	Successful = "successful"
	Failed     = "failed"
	Unknown    = "unknown"
)

// Probes counts how probes have ended and how long they took, as long as their pods are
// here. The zero value has counted nothing.
type Probes struct {
	mu    sync.Mutex
	ended map[Probe]*outcomes
}

// outcomes are those of one probe.
type outcomes struct {
	by   map[string]uint64 // result
	took times
}

// bounds are those that a kubelet has, in seconds.
var bounds = [...]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

// times are a histogram.
type times struct {
	within [len(bounds)]uint64 // each in its own bound alone
	count  uint64
	sum    float64
}

func (t *times) add(seconds float64) {
	t.count++
	t.sum += seconds
	if i, _ := slices.BinarySearch(bounds[:], seconds); i < len(bounds) {
		t.within[i]++
	}
}

func (t *times) merge(o *times) {
	t.count += o.count
	t.sum += o.sum
	for i, n := range o.within {
		t.within[i] += n
	}
}

// Add counts one, with its result. As for a kubelet a probe that has failed has no time:
// most of those run until their timeout.
func (p *Probes) Add(of Probe, result string, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil {
		p.ended = map[Probe]*outcomes{}
	}
	o := p.ended[of]
	if o == nil {
		o = &outcomes{by: map[string]uint64{}}
		p.ended[of] = o
	}
	o.by[result]++
	if result != Failed {
		o.took.add(took.Seconds())
	}
}

// Forget forgets those of a pod.
func (p *Probes) Forget(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.ended, func(of Probe, _ *outcomes) bool { return of.UID == uid })
}

// Write writes them in the text format of Prometheus.
func (p *Probes) Write(to io.Writer) error {
	w := bufio.NewWriter(to)
	p.mu.Lock()
	all := slices.SortedFunc(maps.Keys(p.ended), Probe.compare)
	fmt.Fprint(w, "# HELP prober_probe_total Probes of containers by their result.\n# TYPE prober_probe_total counter\n")
	took := map[Probe]*times{}
	for _, of := range all {
		o := p.ended[of]
		for _, result := range slices.Sorted(maps.Keys(o.by)) {
			fmt.Fprintf(w, "prober_probe_total{container=%q,namespace=%q,pod=%q,pod_uid=%q,probe_type=%q,result=%q} %d\n",
				of.Container, of.Namespace, of.Pod, of.UID, of.Type, result, o.by[result])
		}
		of.UID = "" // which the times do not have: two pods of one name share them
		if took[of] == nil {
			took[of] = &times{}
		}
		took[of].merge(&o.took)
	}
	p.mu.Unlock() // whoever reads may be slow
	writeTimes(w, took)
	return w.Flush()
}

func writeTimes(w io.Writer, took map[Probe]*times) {
	const name = "prober_probe_duration_seconds"
	fmt.Fprintf(w, "# HELP %s How long probes took that have not failed.\n# TYPE %s histogram\n", name, name)
	for _, of := range slices.SortedFunc(maps.Keys(took), Probe.compare) {
		t := took[of]
		if t.count == 0 {
			continue
		}
		labels := fmt.Sprintf("container=%q,namespace=%q,pod=%q,probe_type=%q", of.Container, of.Namespace, of.Pod, of.Type)
		var within uint64
		for i, bound := range bounds {
			within += t.within[i]
			fmt.Fprintf(w, "%s_bucket{%s,le=%q} %d\n", name, labels, decimal(bound), within)
		}
		fmt.Fprintf(w, "%s_bucket{%s,le=\"+Inf\"} %d\n%s_sum{%s} %s\n%s_count{%s} %d\n", name, labels, t.count, name, labels, decimal(t.sum), name, labels, t.count)
	}
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
