package cli

import (
	"fmt"
	"io"
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	adminv1 "fairlead.run/api/admin/v1"
)

// display shows pulls: bars on a terminal, plain lines elsewhere.
type display struct {
	mu   sync.Mutex
	out  io.Writer
	bars *mpb.Progress // nil without a terminal, and before the first pull
	tty  bool
}

func newDisplay(out io.Writer) *display {
	_, tty := terminal(out)
	return &display{out: out, tty: tty}
}

// close waits until the last bars are drawn.
func (d *display) close() {
	d.mu.Lock()
	bars := d.bars
	d.bars = nil
	d.mu.Unlock()
	if bars != nil {
		bars.Wait()
	}
}

// bar is one pull.
type bar struct {
	d     *display
	image string
	b     *mpb.Bar

	mu    sync.Mutex
	phase string
	shown sync.Once
}

// begin makes a bar. It is shown with the first update: until then the runtime
// may still say that the name is none.
func (d *display) begin(image string) *bar {
	return &bar{d: d, image: image, phase: "resolving"}
}

func (p *bar) show() { p.shown.Do(p.draw) }

func (p *bar) draw() {
	d := p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.tty {
		_, _ = fmt.Fprintf(d.out, "pulling %s\n", p.image)
		return
	}
	if d.bars == nil {
		d.bars = mpb.New(mpb.WithOutput(d.out), mpb.WithWidth(40))
	}
	p.b = d.bars.AddBar(0,
		mpb.PrependDecorators(decor.Name(p.image, decor.WCSyncSpaceR), decor.Any(func(decor.Statistics) string { return p.text() }, decor.WCSyncSpaceR)),
		mpb.AppendDecorators(decor.CountersKiloByte("% .1f / % .1f")))
}

func (p *bar) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.phase
}

func (p *bar) update(e adminv1.PullEvent) {
	p.show()
	p.mu.Lock()
	if e.Phase != "" {
		p.phase = e.Phase
	}
	p.mu.Unlock()
	if p.b == nil || len(e.Layers) == 0 {
		return
	}
	// Both halves of the work count: each layer is fetched, then unpacked.
	var done, total int64
	for _, l := range e.Layers {
		total += 2 * l.Total
		switch l.Phase {
		case "downloading":
			done += l.Done
		case "unpacking":
			done += l.Total + l.Done
		case "done":
			done += 2 * l.Total
		}
	}
	p.b.SetTotal(total/2+1, false) // the last byte is end's, so that the bar lives until then
	p.b.SetCurrent(done / 2)
}

func (p *bar) end(err error) {
	switch {
	case p.b == nil && err == nil:
		p.d.mu.Lock()
		defer p.d.mu.Unlock()
		_, _ = fmt.Fprintf(p.d.out, "pulled %s\n", p.image)
	case p.b == nil: // the error is the caller's to report
	case err != nil:
		p.b.Abort(false)
	default:
		p.b.SetTotal(-1, true)
	}
}
