package stats

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// To read the files of some hundred containers takes tens of milliseconds. Lists
// of so many are therefore answered from what was measured lately, and as long as
// somebody asks for them, all is measured again and again in the background, a
// few at a time. A list that can be measured within liveTime is measured at once,
// so that on a node with few containers nothing is older than the request. Where
// it cannot, a part that is newer than the others is not worth the wait.
const (
	// maxAge is the age of the oldest measurement that is an answer. While
	// somebody asks, none gets older than half of that.
	maxAge = 10 * time.Second
	// liveTime is how long a list may take to measure what is not too old yet.
	liveTime = 2 * time.Millisecond
	// interest is how long after the last list somebody still counts as asking.
	interest = time.Minute
	// step is how often a few are measured in the background.
	step = 100 * time.Millisecond
	// few is how many subjects it takes for one more thread to measure them.
	few = 16
)

// measurement is what was found out about a subject at one time.
type measurement[V any] struct {
	value V
	err   error
	at    time.Time
	// kept says that it was measured before it was asked for.
	kept bool
}

// lately answers lists of one kind of measurement.
type lately[V any] struct {
	measure func(pod.Subject) (V, error)
	begin   func(pod.Subject) // told of what is measured next, before the first is
	cost    atomic.Int64      // what one measurement takes, a moving average, in ns

	mu     sync.Mutex
	known  map[string]*entry[V]
	asked  time.Time     // when a list was answered from what is known
	wanted chan struct{} // has one element when somebody begins to ask
}

type entry[V any] struct {
	subject pod.Subject
	last    measurement[V]
	asked   time.Time
}

func newLately[V any](begin func(pod.Subject), measure func(pod.Subject) (V, error)) *lately[V] {
	return &lately[V]{begin: begin, measure: measure, known: map[string]*entry[V]{}, wanted: make(chan struct{}, 1)}
}

func keyOf(s pod.Subject) string {
	if s.Container != nil {
		return string(s.Container.ID)
	}
	return string(s.Pod.ID)
}

// of answers a list, in the order of the subjects.
func (l *lately[V]) of(ctx context.Context, subjects []pod.Subject) []measurement[V] {
	now := time.Now()
	out, order, must := l.recall(subjects, now)
	for _, i := range order {
		l.begin(subjects[i])
	}
	deadline := now.Add(liveTime)
	var next atomic.Int64
	work := func() {
		for {
			n := int(next.Add(1)) - 1
			if n >= len(order) || n >= must && time.Now().After(deadline) {
				return
			}
			i := order[n]
			if ctx.Err() != nil {
				out[i] = measurement[V]{err: context.Cause(ctx)}
				continue
			}
			out[i] = l.now(subjects[i])
		}
	}
	var others sync.WaitGroup
	for range workers(len(order)) - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
	l.learn(subjects, out, now)
	return out
}

func (l *lately[V]) now(s pod.Subject) measurement[V] {
	m := measurement[V]{at: time.Now()}
	m.value, m.err = l.measure(s)
	took, average := int64(time.Since(m.at)), l.cost.Load()
	if average > 0 {
		took = average + (took-average)/16
	}
	l.cost.Store(took) // one of two at the same time may be left out
	return m
}

// recall is what is known of each subject, and the order in which to measure
// them: first those, as many as must, of which nothing is known that is an
// answer, then the others, of which the oldest are first, if there is time for all.
func (l *lately[V]) recall(subjects []pod.Subject, now time.Time) (out []measurement[V], order []int, must int) {
	out, order = make([]measurement[V], len(subjects)), make([]int, 0, len(subjects))
	var known []int
	l.mu.Lock()
	for i, s := range subjects {
		// One whose record has changed, its limits perhaps, is another subject.
		if e := l.known[keyOf(s)]; e != nil && e.subject == s && now.Sub(e.last.at) <= maxAge {
			out[i] = e.last
			out[i].kept = true
			e.asked = now
			known = append(known, i)
		} else {
			order = append(order, i)
		}
	}
	l.mu.Unlock()
	must = len(order)
	if all := time.Duration(l.cost.Load()) * time.Duration(len(subjects)); all/time.Duration(workers(len(subjects))) <= liveTime {
		slices.SortFunc(known, func(a, b int) int { return out[a].at.Compare(out[b].at) })
		order = append(order, known...)
	}
	return out, order, must
}

// workers is on how many threads so many are measured.
func workers(subjects int) int { return max(1, min(runtime.GOMAXPROCS(0), (subjects+few-1)/few)) }

// learn keeps what a list has measured if it could not measure everything.
func (l *lately[V]) learn(subjects []pod.Subject, found []measurement[V], began time.Time) {
	// A list that took longer than it may would, the next time, be answered from
	// what is known.
	late := time.Since(began) > liveTime || slices.ContainsFunc(found, func(m measurement[V]) bool { return m.kept })
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, m := range found {
		if m.kept || m.err != nil {
			continue
		}
		key := keyOf(subjects[i])
		// What is known is never older than what was told: counters do not go back.
		if e := l.known[key]; e == nil && late || e != nil && e.last.at.Before(m.at) {
			l.known[key] = &entry[V]{subject: subjects[i], last: m, asked: now}
		}
	}
	if !late {
		return
	}
	l.asked = now
	select {
	case l.wanted <- struct{}{}:
	default:
	}
}

// run measures in the background while somebody asks.
func (l *lately[V]) run(ctx context.Context) {
	for {
		select {
		case <-l.wanted:
		case <-ctx.Done():
			return
		}
		tick := time.NewTicker(step)
		for l.renew(ctx) {
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		tick.Stop()
	}
}

// renew measures the oldest of those that are asked about, and forgets the
// others. It returns false, and knows nothing any more, when nobody asks.
func (l *lately[V]) renew(ctx context.Context) bool {
	old := l.oldest(time.Now())
	for _, s := range old {
		l.begin(s)
	}
	for _, s := range old {
		m := l.now(s)
		l.mu.Lock()
		if e := l.known[keyOf(s)]; e != nil && e.subject == s {
			e.last = m
			if errors.Is(m.err, errdefs.ErrNotFound) {
				delete(l.known, keyOf(s))
			}
		}
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() == nil && len(l.known) > 0 && time.Since(l.asked) < interest {
		return true
	}
	l.known = map[string]*entry[V]{}
	return false
}

// oldest are so many that all get their turn within half of maxAge.
func (l *lately[V]) oldest(now time.Time) []pod.Subject {
	l.mu.Lock()
	defer l.mu.Unlock()
	var old []*entry[V]
	for key, e := range l.known {
		if now.Sub(e.asked) > interest {
			delete(l.known, key)
			continue
		}
		old = append(old, e)
	}
	slices.SortFunc(old, func(a, b *entry[V]) int { return a.last.at.Compare(b.last.at) })
	const turns = int(maxAge / 2 / step)
	var out []pod.Subject
	for _, e := range old[:(len(old)+turns-1)/turns] {
		// What a list has measured meanwhile need not be measured for nobody.
		if now.Sub(e.last.at) > maxAge/4 {
			out = append(out, e.subject)
		}
	}
	return out
}
