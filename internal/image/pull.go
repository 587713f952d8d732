package image

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image/progress"
	"fairlead.run/internal/image/registry"
)

// Auth is what a caller proves his right to an image with.
type Auth = registry.Auth

// The state of a pull or an import, for whoever wants to show it.
type (
	Progress      = progress.State
	LayerProgress = progress.Layer
	Phase         = progress.Phase
)

// The phases, in order.
const (
	PhaseResolving   = progress.Resolving
	PhaseWaiting     = progress.Waiting
	PhaseDownloading = progress.Downloading
	PhaseUnpacking   = progress.Unpacking
	PhaseDone        = progress.Done
)

// PullRequest says what to pull and how.
type PullRequest struct {
	Ref      string         // as a user writes it
	Auth     *Auth          // nil: credentials come from docker config files, if any
	Platform string         // "linux/arm64"; empty: the store's
	Progress func(Progress) // called about ten times a second on the caller's goroutine, and once at the end
}

// Pull fetches the image, unpacks it and names it. If it is here already and
// the registry's copy has not changed, nothing is fetched.
//
// Pulls of one name with the same credentials and platform join: they are one
// operation, which goes on until it is done or its last caller has given up.
// A pull that fails or is given up leaves nothing behind.
func (s *Store) Pull(ctx context.Context, req PullRequest) (Image, error) {
	name, err := Normalize(req.Ref)
	if err != nil {
		return Image{}, fmt.Errorf("pull image: %w", err)
	}
	if _, err := s.matcher(req.Platform); err != nil {
		return Image{}, fmt.Errorf("pull image %s: %w", name, err)
	}
	op, err := s.pulls.join(ctx, pullKey(name, req), func(ctx context.Context, op *pullOp) {
		op.img, op.err = s.pull(ctx, name, req, op.track)
	}, progress.NewTracker(name))
	if err != nil {
		return Image{}, fmt.Errorf("pull image %s: %w", name, err)
	}
	defer s.pulls.leave(op)
	if err := op.wait(ctx, req.Progress); err != nil {
		return Image{}, fmt.Errorf("pull image %s: %w", name, err)
	}
	if op.err != nil {
		return Image{}, op.err
	}
	return op.img.clone(), nil
}

// pullKey tells pulls apart. Credentials are part of it: whoever joins must not
// get by another's credentials what his own would not give him.
func pullKey(name string, req PullRequest) string {
	return name + " " + req.Platform + " " + req.Auth.Fingerprint()
}

// pulls are the pulls in flight.
type pulls struct {
	mu     sync.Mutex
	ops    map[string]*pullOp
	all    map[*pullOp]struct{} // ops and those that everybody has left
	closed bool
}

// pullOp is one pull in flight. img and err are valid once done is closed.
type pullOp struct {
	key     string
	callers int
	cancel  context.CancelCauseFunc
	done    chan struct{}
	track   *progress.Tracker
	img     Image
	err     error
}

// ended is why a pull was told to stop. HTTP clients return the cause of a
// cancelled context in place of context.Canceled, so it has to be that as well.
type ended string

func (e ended) Error() string { return string(e) }
func (e ended) Unwrap() error { return context.Canceled }

const (
	errAbandoned ended = "every caller has given up"
	errClosing   ended = "the image store is closing"
)

// join finds the operation with that key or starts one. The goroutine it
// starts ends when the operation does; close waits for it.
func (p *pulls) join(ctx context.Context, key string, run func(context.Context, *pullOp), t *progress.Tracker) (*pullOp, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("%w: %w", errClosing, errdefs.ErrUnavailable)
	}
	if op := p.ops[key]; op != nil {
		op.callers++
		return op, nil
	}
	opCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	op := &pullOp{key: key, callers: 1, cancel: cancel, done: make(chan struct{}), track: t}
	if p.ops == nil {
		p.ops, p.all = map[string]*pullOp{}, map[*pullOp]struct{}{}
	}
	p.ops[key], p.all[op] = op, struct{}{}
	go func() {
		defer cancel(nil)
		defer p.finish(op)
		run(opCtx, op)
	}()
	return op, nil
}

func (p *pulls) finish(op *pullOp) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(op)
	delete(p.all, op)
	close(op.done)
}

// forget keeps later callers from joining the operation.
func (p *pulls) forget(op *pullOp) {
	if p.ops[op.key] == op {
		delete(p.ops, op.key)
	}
}

// leave is a caller's end of interest. The last one to leave ends the pull.
func (p *pulls) leave(op *pullOp) {
	p.mu.Lock()
	defer p.mu.Unlock()
	op.callers--
	if op.callers == 0 {
		p.forget(op)
		op.cancel(errAbandoned)
	}
}

// close ends all pulls and waits until they have cleaned up.
func (p *pulls) close() {
	p.mu.Lock()
	p.closed = true
	waiting := make([]*pullOp, 0, len(p.all))
	for op := range p.all {
		op.cancel(errClosing)
		waiting = append(waiting, op)
	}
	p.mu.Unlock()
	for _, op := range waiting {
		<-op.done
	}
}

// wait returns when the operation is done or the caller's context ends.
func (op *pullOp) wait(ctx context.Context, report func(Progress)) error {
	var tick <-chan time.Time
	if report != nil {
		t := time.NewTicker(progress.Interval)
		defer t.Stop()
		tick = t.C
		report(op.track.Snapshot())
	}
	for {
		select {
		case <-op.done:
			if report != nil {
				report(op.track.Snapshot())
			}
			return nil
		case <-ctx.Done():
			return contextError(ctx)
		case <-tick:
			report(op.track.Snapshot())
		}
	}
}

// contextError is why the context ended, in our kinds.
func contextError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("the caller's deadline has passed: %w: %w", context.Cause(ctx), errdefs.ErrDeadline)
	}
	return fmt.Errorf("the caller has given up: %w", context.Cause(ctx))
}
