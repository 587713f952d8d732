package image

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Phase is what a pull or one of its layers is at.
type Phase string

// The phases, in order. A layer that is here already goes from PhaseWaiting to
// PhaseDone at once.
const (
	PhaseResolving   Phase = "resolving"
	PhaseWaiting     Phase = "waiting"
	PhaseDownloading Phase = "downloading"
	PhaseUnpacking   Phase = "unpacking"
	PhaseDone        Phase = "done"
)

// Progress is the state of a pull at one moment.
type Progress struct {
	Ref    string
	Phase  Phase
	Layers []LayerProgress // bottom first; empty while PhaseResolving
}

// LayerProgress is the state of one layer. Done counts compressed bytes of
// what Phase does, so it starts again from 0 when unpacking begins.
type LayerProgress struct {
	Digest string
	Phase  Phase
	Done   int64
	Total  int64
}

// progressInterval is how often a caller's Progress function runs.
const progressInterval = 100 * time.Millisecond

// tracker gathers the progress of one pull.
type tracker struct {
	ref    string
	mu     sync.Mutex
	order  []digest.Digest
	layers map[digest.Digest]*layerTrack
	phase  Phase

	last      atomic.Int64 // time of the last byte or step, Unix ns
	transfers atomic.Int32 // blobs being fetched
}

type layerTrack struct {
	phase Phase
	done  int64
	total int64
}

func newTracker(ref string) *tracker {
	t := &tracker{ref: ref, phase: PhaseResolving, layers: map[digest.Digest]*layerTrack{}}
	t.touch()
	return t
}

func (t *tracker) touch() { t.last.Store(time.Now().UnixNano()) }

// idle is how long nothing has come from the registry. It is 0 while nothing is
// expected from there: disks and other pulls may take their time.
func (t *tracker) idle() time.Duration {
	if t.transfers.Load() == 0 {
		return 0
	}
	return time.Since(time.Unix(0, t.last.Load()))
}

// expect adds the layers of the chosen manifest.
func (t *tracker) expect(layers []ocispec.Descriptor) {
	t.touch()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phase = PhaseDownloading
	for _, l := range layers {
		if t.layers[l.Digest] == nil {
			t.layers[l.Digest] = &layerTrack{phase: PhaseWaiting, total: l.Size}
			t.order = append(t.order, l.Digest)
		}
	}
}

// set notes that done bytes of the phase are through. It ignores blobs that
// are not layers.
func (t *tracker) set(d digest.Digest, p Phase, done int64) {
	t.touch()
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.layers[d]; l != nil && l.phase != PhaseDone {
		l.phase, l.done = p, done
	}
}

// finish marks everything as done.
func (t *tracker) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phase = PhaseDone
	for _, l := range t.layers {
		l.phase, l.done = PhaseDone, l.total
	}
}

func (t *tracker) snapshot() Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := Progress{Ref: t.ref, Phase: t.phase, Layers: make([]LayerProgress, 0, len(t.order))}
	fetching, unpacking := false, false
	for _, d := range t.order {
		l := t.layers[d]
		p.Layers = append(p.Layers, LayerProgress{Digest: d.String(), Phase: l.phase, Done: l.done, Total: l.total})
		fetching = fetching || l.phase == PhaseDownloading || l.phase == PhaseWaiting
		unpacking = unpacking || l.phase == PhaseUnpacking
	}
	if p.Phase == PhaseDownloading && unpacking && !fetching {
		p.Phase = PhaseUnpacking
	}
	return p
}

// reportWhile calls report until the returned function is called, and once more
// then. It is for work that blocks the caller's goroutine.
func reportWhile(t *tracker, report func(Progress)) func() {
	if report == nil {
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(progressInterval)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				report(t.snapshot())
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
		report(t.snapshot())
	}
}
