package layer

import (
	"fmt"
	"io"
	"sync"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image/disk"
)

// What an image may take to be unpacked, all layers together: some time for
// anything, and more for what it has. A disk that can do no better is of no use for
// images. What needs longer was made for that: links that lead through
// thousands of folders cost seconds for each entry, and a few bytes of an archive.
const (
	anyTime  = 10 * time.Minute
	perEntry = 5 * time.Millisecond
	perChunk = time.Second // for each chunk bytes
	chunk    = 4 << 20
)

// lookEvery is how often disk and time are looked at.
const lookEvery = 100 * time.Millisecond

// pace is what was unpacked of an image so far, and for how long. The time that its
// layers take at the same time is added up.
type pace struct {
	now            func() time.Time
	mu             sync.Mutex
	spent          time.Duration
	entries, bytes int64
}

func newPace() *pace { return &pace{now: time.Now} }

// add says whether the image still has time.
func (p *pace) add(spent time.Duration, entries, bytes int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent, p.entries, p.bytes = p.spent+spent, p.entries+entries, p.bytes+bytes
	if allowed := anyTime + time.Duration(p.entries)*perEntry + time.Duration(p.bytes/chunk)*perChunk; p.spent > allowed {
		return fmt.Errorf("after %s no more than %d entries and %d bytes are unpacked: the image is made to take long, or the disk is too slow: %w",
			p.spent.Round(time.Second), p.entries, p.bytes, errdefs.ErrExhausted)
	}
	return nil
}

// watch ends the unpacking of a layer that takes more than it may. One goroutine
// calls its methods, between all steps.
type watch struct {
	bound bound
	pace  *pace
	ended func() error // why nobody wants the layer any more

	looked         time.Time // also when it began
	entries, bytes int64     // since then
}

func newWatch(b bound, p *pace, ended func() error) *watch {
	return &watch{bound: b, pace: p, ended: ended, looked: p.now()}
}

// step notes what was unpacked and says why to stop, or nil. Layers that are
// unpacked at the same time share what the disk can spare, so it is looked at again
// and again.
func (w *watch) step(entries, bytes int64) error {
	w.entries, w.bytes = w.entries+entries, w.bytes+bytes
	if err := w.ended(); err != nil {
		return err
	}
	if w.pace.now().Sub(w.looked) < lookEvery {
		return nil
	}
	return w.look()
}

func (w *watch) look() error {
	now := w.pace.now()
	err := w.pace.add(now.Sub(w.looked), w.entries, w.bytes)
	w.looked, w.entries, w.bytes = now, 0, 0
	switch {
	case err != nil:
		return err
	case disk.Spare(w.bound.dir) == 0:
		return w.bound.full()
	case disk.SpareFiles(w.bound.dir) == 0:
		b := w.bound
		b.entries, b.fewFiles = 0, true
		return b.tooMany()
	}
	return nil
}

// cappedReader fails once a layer has grown past its bound.
type cappedReader struct {
	r     io.Reader
	watch *watch
	n     int64
}

func (c *cappedReader) Read(p []byte) (int, error) {
	if err := c.watch.step(0, 0); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	if c.n += int64(n); c.n > c.watch.bound.bytes {
		return 0, c.watch.bound.exceeded()
	}
	if stop := c.watch.step(0, int64(n)); stop != nil {
		return 0, stop
	}
	return n, err
}
