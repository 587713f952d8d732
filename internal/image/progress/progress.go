// Package progress gathers how far a pull or an import has come, for whoever
// wants to show it. It draws nothing.
package progress

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Phase is what a pull or one of its layers is at.
type Phase string

// The phases, in order. A layer that is here already goes from Waiting to
// Done at once.
const (
	Resolving   Phase = "resolving"
	Waiting     Phase = "waiting"
	Downloading Phase = "downloading"
	Unpacking   Phase = "unpacking"
	Recording   Phase = "recording" // of a pull: its names
	Done        Phase = "done"
)

// The phases of what is no pull.
const (
	Reading Phase = "reading the archive" // of an import, in place of Resolving
	Writing Phase = "writing the archive" // of an export
	Freeing Phase = "freeing layers"      // of a removal
)

// Passage is a phase that a pull has come to, and when. Layers are unpacked while
// others are still on their way, so Unpacking is only what remains after the last
// has come.
type Passage struct {
	Phase Phase
	Since time.Time
}

// State is the state of a pull at one moment.
type State struct {
	Ref    string
	Phase  Phase
	Layers []Layer // bottom first; empty while Resolving
}

// String is the state for people: "downloading, 1 of 3 layers done, 12.5 of 80.1 MB".
func (s State) String() string {
	if len(s.Layers) == 0 {
		return string(s.Phase)
	}
	ready := 0
	var done, total int64
	for _, l := range s.Layers {
		total += l.Total
		switch l.Phase {
		case Done:
			ready++
			done += l.Total
		case s.Phase:
			done += l.Done
		case Unpacking: // it was downloaded
			done += l.Total
		}
	}
	return fmt.Sprintf("%s, %d of %d layers done, %.1f of %.1f MB", s.Phase, ready, len(s.Layers), megabytes(done), megabytes(total))
}

func megabytes(n int64) float64 { return float64(n) / 1e6 }

// Layer is the state of one layer. Done counts compressed bytes of
// what Phase does, so it starts again from 0 when unpacking begins.
type Layer struct {
	Digest string
	Phase  Phase
	Done   int64
	Total  int64
}

// Interval is how often a caller's report function runs.
const Interval = 100 * time.Millisecond

// Tracker gathers the progress of one pull. Its methods may be called
// concurrently.
type Tracker struct {
	ref    string
	mu     sync.Mutex
	order  []digest.Digest
	layers map[digest.Digest]*layerTrack
	phase  Phase
	passed []Passage

	last      atomic.Int64 // time of the last byte or step, Unix ns
	transfers atomic.Int32 // blobs being fetched
}

type layerTrack struct {
	phase Phase
	done  int64
	total int64
}

// NewTracker begins a pull of ref.
func NewTracker(ref string) *Tracker {
	t := &Tracker{ref: ref, layers: map[digest.Digest]*layerTrack{}}
	t.Enter(Resolving)
	return t
}

// Begin and End enclose every wait for a registry.
func (t *Tracker) Begin() { t.touch(); t.transfers.Add(1) }

// End is the counterpart of Begin.
func (t *Tracker) End() { t.transfers.Add(-1) }

func (t *Tracker) touch() { t.last.Store(time.Now().UnixNano()) }

// Idle is how long nothing has come from the registry. It is 0 while nothing is
// expected from there: disks and other pulls may take their time.
func (t *Tracker) Idle() time.Duration {
	if t.transfers.Load() == 0 {
		return 0
	}
	return time.Since(time.Unix(0, t.last.Load()))
}

// Enter notes a phase that no layer tells of: they are not known yet, or all are
// unpacked.
func (t *Tracker) Enter(p Phase) {
	t.touch()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phase = p
	t.pass(p)
}

// pass notes the time of a phase, once. t.mu is held.
func (t *Tracker) pass(p Phase) {
	for _, was := range t.passed {
		if was.Phase == p {
			return
		}
	}
	t.passed = append(t.passed, Passage{p, time.Now()})
}

// Passed are the phases up to now, in their order.
func (t *Tracker) Passed() []Passage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.passed)
}

// Expect adds the layers of the chosen manifest.
func (t *Tracker) Expect(layers []ocispec.Descriptor) {
	t.touch()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phase = Downloading
	t.pass(Downloading)
	for _, l := range layers {
		if t.layers[l.Digest] == nil {
			t.layers[l.Digest] = &layerTrack{phase: Waiting, total: l.Size}
			t.order = append(t.order, l.Digest)
		}
	}
}

// Set notes that done bytes of the phase are through. It ignores blobs that
// are not layers.
func (t *Tracker) Set(d digest.Digest, p Phase, done int64) {
	t.touch()
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.layers[d]
	if l == nil || l.phase == Done {
		return
	}
	moved := l.phase != p
	l.phase, l.done = p, done
	if moved && p != Downloading && t.fetched() {
		t.pass(Unpacking)
	}
}

// fetched says that no layer is on its way any more. t.mu is held.
func (t *Tracker) fetched() bool {
	for _, l := range t.layers {
		if l.phase == Waiting || l.phase == Downloading {
			return false
		}
	}
	return true
}

// Finish marks everything as done.
func (t *Tracker) Finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phase = Done
	for _, l := range t.layers {
		l.phase, l.done = Done, l.total
	}
}

// Snapshot is the state at this moment.
func (t *Tracker) Snapshot() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := State{Ref: t.ref, Phase: t.phase, Layers: make([]Layer, 0, len(t.order))}
	unpacking := false
	for _, d := range t.order {
		l := t.layers[d]
		p.Layers = append(p.Layers, Layer{Digest: d.String(), Phase: l.phase, Done: l.done, Total: l.total})
		unpacking = unpacking || l.phase == Unpacking
	}
	if p.Phase == Downloading && unpacking && t.fetched() {
		p.Phase = Unpacking
	}
	return p
}

// ReportWhile calls report until the returned function is called, and once more
// then. It is for work that blocks the caller's goroutine.
func ReportWhile(t *Tracker, report func(State)) func() {
	if report == nil {
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(Interval)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				report(t.Snapshot())
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
		report(t.Snapshot())
	}
}
