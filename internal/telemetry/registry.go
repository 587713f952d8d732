package telemetry

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// maxSeries bounds how many values one family has. Labels that callers may
// choose would otherwise take memory without end; what is beyond is not counted.
const maxSeries = 512

// Registry is the families of one daemon, in the order in which they are told.
type Registry struct {
	mu       sync.Mutex
	families []family
}

type family interface{ write(w *bufio.Writer) }

func add[F family](r *Registry, f F) F {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.families = append(r.families, f)
	return f
}

// Write tells all families. Whoever counts waits for a family to be written, and
// must not wait for whoever reads: all is written to memory first.
func (r *Registry) Write(to io.Writer) error {
	r.mu.Lock()
	families := slices.Clone(r.families)
	r.mu.Unlock()
	var text bytes.Buffer
	w := bufio.NewWriter(&text)
	for _, f := range families {
		f.write(w)
	}
	_ = w.Flush() // memory takes everything
	_, err := text.WriteTo(to)
	return err
}

// about is what families have in common.
type about struct {
	name, help, kind string
	labels           []string
}

func (a *about) head(w *bufio.Writer) {
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", a.name, a.help, a.name, a.kind)
}

// sample is one line of a family: the suffix of its name and the upper bound of
// its bucket, where it has them.
type sample struct {
	suffix, le string
	value      float64
}

func (a *about) line(w *bufio.Writer, values []string, s sample) {
	w.WriteString(a.name + s.suffix)
	separator := "{"
	for i, label := range a.labels {
		w.WriteString(separator + label + `="` + escape(values[i]) + `"`)
		separator = ","
	}
	if s.le != "" {
		w.WriteString(separator + `le="` + s.le + `"`)
		separator = ","
	}
	if separator == "," {
		w.WriteString("}")
	}
	w.WriteString(" " + number(s.value) + "\n")
}

var escaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func escape(s string) string { return escaper.Replace(s) }

func number(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// series are the values of one family by their labels.
type series[V any] struct {
	mu  sync.Mutex
	all map[string]*labelled[V]
}

type labelled[V any] struct {
	labels []string
	value  V
}

// change calls f with the value of these labels, a new one if there is none.
func (s *series[V]) change(labels []string, f func(*V)) {
	key := strings.Join(labels, "\x00")
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.all[key]
	if l == nil {
		if len(s.all) >= maxSeries {
			return
		}
		if s.all == nil {
			s.all = map[string]*labelled[V]{}
		}
		l = &labelled[V]{labels: slices.Clone(labels)}
		s.all[key] = l
	}
	f(&l.value)
}

// each calls f with every value, in the order of the labels.
func (s *series[V]) each(f func(labels []string, v *V)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(s.all)) {
		f(s.all[key].labels, &s.all[key].value)
	}
}

// Counter is a family of numbers that only grow.
type Counter struct {
	about
	values series[float64]
}

// Counter makes one. By convention its name ends in "_total".
func (r *Registry) Counter(name, help string, labels ...string) *Counter {
	return add(r, &Counter{about: about{name, help, "counter", labels}})
}

// Add counts n, for one value for each label.
func (c *Counter) Add(n float64, labels ...string) {
	c.values.change(labels, func(v *float64) { *v += n })
}

func (c *Counter) write(w *bufio.Writer) {
	c.head(w)
	c.values.each(func(labels []string, v *float64) { c.line(w, labels, sample{value: *v}) })
}

// Gauge is a family of numbers that are found out when somebody asks.
type Gauge struct {
	about
	read func(tell func(value float64, labels ...string))
}

// Gauge makes one.
func (r *Registry) Gauge(name, help string, labels []string, read func(tell func(value float64, labels ...string))) *Gauge {
	return add(r, &Gauge{about{name, help, "gauge", labels}, read})
}

func (g *Gauge) write(w *bufio.Writer) {
	g.head(w)
	g.read(func(value float64, labels ...string) { g.line(w, labels, sample{value: value}) })
}

// Histogram is a family of times, in seconds.
type Histogram struct {
	about
	bounds []float64
	values series[observed]
}

type observed struct {
	within []uint64 // by bounds
	count  uint64
	sum    float64
}

// usual bounds are from a system call to a pull, in seconds.
var usual = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}

// Histogram makes one. By convention its name ends in "_seconds".
func (r *Registry) Histogram(name, help string, labels ...string) *Histogram {
	return add(r, &Histogram{about: about{name, help, "histogram", labels}, bounds: usual})
}

// Within has it count by other bounds, in seconds, from small to large. It is called before
// anything is observed.
func (h *Histogram) Within(bounds ...float64) *Histogram {
	h.bounds = bounds
	return h
}

// Observe counts one time, in seconds.
func (h *Histogram) Observe(seconds float64, labels ...string) {
	h.values.change(labels, func(o *observed) {
		if o.within == nil {
			o.within = make([]uint64, len(h.bounds))
		}
		o.count++
		o.sum += seconds
		for i, bound := range h.bounds {
			if seconds <= bound {
				o.within[i]++
			}
		}
	})
}

func (h *Histogram) write(w *bufio.Writer) {
	h.head(w)
	h.values.each(func(labels []string, o *observed) {
		for i, bound := range h.bounds {
			h.line(w, labels, sample{"_bucket", number(bound), float64(o.within[i])})
		}
		h.line(w, labels, sample{"_bucket", "+Inf", float64(o.count)})
		h.line(w, labels, sample{"_sum", "", o.sum})
		h.line(w, labels, sample{"_count", "", float64(o.count)})
	})
}
