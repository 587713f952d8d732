package tally

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
)

// Probe is one of a container. All of it is of the API's making, which allows no character
// that would have to be escaped.
type Probe struct{ Namespace, Pod, UID, Container, Type string }

// Probes counts how probes have ended, as long as their pods are here. The zero value has
// counted nothing.
type Probes struct {
	mu    sync.Mutex
	ended map[Probe]map[string]uint64 // by result
}

// Add counts one; the result is successful, failed or unknown.
func (p *Probes) Add(of Probe, result string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil {
		p.ended = map[Probe]map[string]uint64{}
	}
	if p.ended[of] == nil {
		p.ended[of] = map[string]uint64{}
	}
	p.ended[of][result]++
}

// Forget forgets those of a pod.
func (p *Probes) Forget(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.ended, func(of Probe, _ map[string]uint64) bool { return of.UID == uid })
}

// Write writes them in the text format of Prometheus.
func (p *Probes) Write(to io.Writer) error {
	w := bufio.NewWriter(to)
	fmt.Fprint(w, "# HELP prober_probe_total Probes of containers by their result.\n# TYPE prober_probe_total counter\n")
	p.mu.Lock()
	for _, of := range slices.SortedFunc(maps.Keys(p.ended), func(a, b Probe) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Container, b.Container), cmp.Compare(a.Type, b.Type))
	}) {
		for _, result := range slices.Sorted(maps.Keys(p.ended[of])) {
			fmt.Fprintf(w, "prober_probe_total{container=%q,namespace=%q,pod=%q,pod_uid=%q,probe_type=%q,result=%q} %d\n",
				of.Container, of.Namespace, of.Pod, of.UID, of.Type, result, p.ended[of][result])
		}
	}
	p.mu.Unlock() // whoever reads may be slow
	return w.Flush()
}
