package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/stage"
)

// Why operations end early.
var (
	errPodStops         = errors.New("its pod is being stopped")
	errContainerStops   = errors.New("the container is being stopped")
	errContainerRemoved = errors.New("the container is being removed")
)

// GiveUp ends the operations that make or change containers of a pod or keep them
// frozen, and waits for them. Nobody may start another meanwhile.
func (l *Ledger) GiveUp(ctx context.Context, id pod.ID) error {
	return l.giveUp(ctx, errPodStops, func(a About) bool {
		return a.Pod == id && (slices.Contains([]string{Create, Start, Checkpoint}, a.Verb) || a.Kind == KindContainer && a.Verb == Update)
	})
}

// Unfreeze ends the operations that keep a container of a pod frozen, by itself or
// with its pod, and waits for them.
func (l *Ledger) Unfreeze(ctx context.Context, of pod.ID, id pod.ContainerID) error {
	return l.giveUp(ctx, errContainerStops, func(a About) bool {
		return a.Verb == Checkpoint && (a.Container == id || a.Kind == KindPod && a.Pod == of)
	})
}

// landLimit is how long EndStart waits for a start that it has given up.
const landLimit = 1500 * time.Millisecond

// EndStart waits for the end of the start of a container, if there is one. One that
// takes longer than patience is given up, so that the end is near.
func (l *Ledger) EndStart(ctx context.Context, id pod.ContainerID, patience time.Duration) error {
	starts := func(a About) bool { return a.Verb == Start && a.Container == id }
	late := time.NewTimer(patience)
	defer late.Stop()
	for _, op := range l.those(starts) {
		stage.Enter(ctx, "wait for the end of: "+op.About.String())
		select {
		case <-op.done:
		case <-late.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, landLimit, fmt.Errorf("it was given up and has not ended within %s; ask again: %w", landLimit, errdefs.ErrDeadline))
	defer cancel()
	return l.giveUp(ctx, errContainerStops, starts)
}

// Abandon ends the operations that would have a container that is being removed be
// started or changed, and waits for them. New ones are refused until lift is called.
func (l *Ledger) Abandon(ctx context.Context, id pod.ContainerID) (lift func(), err error) {
	b := &ban{why: errContainerRemoved, what: func(a About) bool {
		return a.Container == id && (a.Verb == Start || a.Verb == Update)
	}}
	lift = l.forbid(b)
	if err := l.giveUp(ctx, b.why, b.what); err != nil {
		lift()
		return nil, err
	}
	return lift, nil
}

// QuitExecs ends what is about to be executed in a container, which has ended. It
// does not wait.
func (l *Ledger) QuitExecs(id pod.ContainerID) {
	l.quit(errContainerStops, execsIn(id))
}

// AwaitExecs is QuitExecs and waits.
func (l *Ledger) AwaitExecs(ctx context.Context, id pod.ContainerID) error {
	return l.giveUp(ctx, errContainerStops, execsIn(id))
}

func execsIn(id pod.ContainerID) func(About) bool {
	return func(a About) bool { return a.Verb == Exec && a.Container == id }
}

// ban keeps operations from beginning.
type ban struct {
	what func(About) bool
	why  error
}

func (l *Ledger) forbid(b *ban) (lift func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bans == nil {
		l.bans = map[*ban]struct{}{}
	}
	l.bans[b] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.bans, b)
	}
}

// banned says why an operation may not begin. l.mu is held.
func (l *Ledger) banned(a About) error {
	for b := range l.bans {
		if b.what(a) {
			return fmt.Errorf("%w: %w", b.why, errdefs.ErrPrecondition)
		}
	}
	return nil
}

func (l *Ledger) giveUp(ctx context.Context, why error, which func(About) bool) error {
	for _, op := range l.quit(why, which) {
		if err := op.landed(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (l *Ledger) quit(why error, which func(About) bool) []*operation {
	ops := l.those(which)
	for _, op := range ops {
		op.cancel(fmt.Errorf("%w: %w", why, errdefs.ErrPrecondition))
	}
	return ops
}

// landed waits for the end of another operation, whatever its result.
func (op *operation) landed(ctx context.Context) error {
	stage.Enter(ctx, "wait for the end of: "+op.About.String())
	select {
	case <-op.done:
		return nil
	case <-ctx.Done():
		at, age := op.where()
		return fmt.Errorf("%s is still at stage %q after %s: %w", op.About, at, age, context.Cause(ctx))
	}
}

func (l *Ledger) those(which func(About) bool) []*operation {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*operation
	for op := range l.all {
		if which(op.About) {
			out = append(out, op)
		}
	}
	return out
}
