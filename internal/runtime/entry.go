package runtime

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/stage"
)

// Trials of a handler that failed are repeated, because not every cause changes
// its fingerprint, but ever more rarely. So are those that left features untried.
const (
	retryFirst = 10 * time.Second
	retryLast  = 5 * time.Minute
)

// verifyEvery is how long a trial counts that left nothing open, give or take a
// tenth, so that handlers and nodes do not all have their trials at once.
const verifyEvery = time.Hour

// believed is how many trials in a row have to fail until a handler that worked,
// and of which nothing has changed, is taken from the pods: a busy machine lets
// a trial fail, too.
const believed = 3

// entry is a handler and the result of its last trial.
type entry[H any] struct {
	def        Definition
	kind       Kind[H]
	cfg        Config
	revisions  *revisions[H]
	driver     H    // until a revision has been tried
	discovered bool // and not configured
	origin     atomic.Pointer[string]

	last      atomic.Pointer[trial[H]]
	turn      chan struct{} // holds one token while a trial runs
	refreshed background
}

// trial is what one trial found.
type trial[H any] struct {
	revision    *revision[H] // nil where none is kept
	info        pod.HandlerInfo
	fingerprint string
	at          time.Time
	took        time.Duration
	failures    int           // in a row, this one included
	settled     bool          // whether another would find the same
	counts      time.Duration // how long it counts
}

func newEntry[H any](d Definition, kind Kind[H], cfg Config, kept *revisions[H]) *entry[H] {
	e := &entry[H]{def: d, kind: kind, cfg: cfg, revisions: kept, turn: make(chan struct{}, 1)}
	e.driver = kind.Open(d, e.known)
	return e
}

// describedAt notes where the handler is described.
func (e *entry[H]) describedAt(w Wanted) {
	if w.Origin != nil {
		where := w.Origin(e.def.Name)
		e.origin.Store(&where)
	}
}

// known is what the last trial found.
func (e *entry[H]) known() pod.HandlerInfo { return e.latest().info }

// latest is the last trial, or one that says that there was none.
func (e *entry[H]) latest() *trial[H] {
	if t := e.last.Load(); t != nil {
		return t
	}
	return &trial[H]{info: e.describe(pod.HandlerInfo{Reason: errTried.Error(), Trying: true})}
}

// driverOf is the driver of what a trial has tried.
func (e *entry[H]) driverOf(t *trial[H]) H {
	if t != nil && t.revision != nil {
		return t.revision.driver
	}
	return e.driver
}

// usable is current, except that nobody waits for another trial of a handler that
// works: it can only tell more of its features.
func (e *entry[H]) usable(ctx context.Context) *trial[H] {
	now := e.kind.Fingerprint(e.def)
	t := e.last.Load()
	if t == nil || t.fingerprint != now || !t.info.Ready {
		return e.current(ctx)
	}
	if !t.valid(now) {
		e.refreshed.run(func() { e.current(context.Background()) })
	}
	return t
}

// current is a trial that is still valid; if need be it waits for one until ctx
// ends, and then it is the last one.
func (e *entry[H]) current(ctx context.Context) *trial[H] {
	now := e.kind.Fingerprint(e.def)
	if t := e.last.Load(); t.valid(now) {
		return t
	}
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return e.latest()
	}
	before := e.last.Load()
	if before.valid(now) {
		return before // another caller tried it
	}
	if closed(e.cfg.over) {
		return e.latest()
	}
	e.tryOnce(before, now, nil)
	return e.latest()
}

// verify tries the handler now, waits for that, and returns what this trial
// found. It tells the steps as they begin.
func (e *entry[H]) verify(ctx context.Context, tell func(step string)) (pod.HandlerInfo, error) {
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return pod.HandlerInfo{}, context.Cause(ctx)
	}
	return e.tryOnce(e.last.Load(), e.kind.Fingerprint(e.def), tell), nil
}

// tryOnce runs a trial and makes it the last one, unless it was given up. It
// returns what this one found. The caller has the turn.
func (e *entry[H]) tryOnce(before *trial[H], now string, tell func(step string)) pod.HandlerInfo {
	kept := e.revisions.hold(e.def, e.kind)
	defer e.revisions.release(kept)
	t := e.try(kept, now, e.limit(before, now), tell)
	found := t.info
	if !closed(e.cfg.over) {
		e.keep(before, t)
	}
	return found
}

// limit is how long a trial may take. Nobody waits for one that repeats another
// of a handler that works, and the last one may have had too little time.
func (e *entry[H]) limit(before *trial[H], now string) time.Duration {
	switch {
	case before == nil || !before.info.Ready || before.fingerprint != now:
		return e.cfg.ProbeTimeout
	case before.settled:
		return e.cfg.ProbeTimeout + retryFirst
	}
	return e.cfg.ProbeTimeout + before.counts
}

// keep makes a trial the last one. What failed for the first time, and worked
// before, is only noted.
func (e *entry[H]) keep(before, t *trial[H]) {
	if before != nil && !t.settled && before.fingerprint == t.fingerprint {
		if !before.settled {
			t.counts = min(2*before.counts, retryLast)
		}
		if !t.info.Ready {
			t.failures += before.failures
		}
		if before.info.Ready && t.failures < believed {
			if !t.info.Ready {
				e.cfg.Log.Warn("runtime handler fails its trial and worked before; it is tried again", "handler", e.def.Name, "failures", t.failures, "reason", t.info.Reason)
			}
			t.info, t.revision = before.info, before.revision
		}
	}
	if t.info.Since = t.at; before != nil && before.info.Ready == t.info.Ready {
		t.info.Since = before.info.Since
	}
	e.last.Store(t)
	e.report(before, t)
}

// try runs one trial. Its deadline is its own: the caller that happens to be
// the first must not decide for the others how long it takes.
func (e *entry[H]) try(kept *revision[H], fingerprint string, limit time.Duration, tell func(step string)) *trial[H] {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	go func(ended <-chan struct{}) {
		select {
		case <-e.cfg.over:
			cancel()
		case <-ended:
		}
	}(ctx.Done())
	if tell != nil {
		ctx = stage.With(ctx, tell)
	}
	begin, d := time.Now(), e.def
	if kept != nil {
		d.Pinned = kept.Program
	}
	t := &trial[H]{revision: kept, info: e.describe(e.kind.Probe(ctx, d)), fingerprint: fingerprint, at: time.Now(), took: time.Since(begin), counts: retryFirst}
	t.info.VerifiedAt = t.at
	if kept != nil {
		t.info.Path, t.info.Revision, t.info.Digest = e.revisions.source(kept), kept.ID, kept.Digest
	}
	if kept != nil && t.info.Ready {
		e.revisions.worked(kept, t.info)
	}
	t.settled = t.info.Ready && !t.info.Features.Unsure
	if t.settled {
		t.counts = verifyEvery - verifyEvery/10 + rand.N(verifyEvery/5)
	}
	if !t.info.Ready {
		t.failures = 1
		if where := e.origin.Load(); where != nil {
			t.info.Reason += " (" + *where + ")"
		}
	}
	return t
}

// describe adds what the configuration says.
func (e *entry[H]) describe(info pod.HandlerInfo) pod.HandlerInfo {
	info.Name, info.Kind = e.def.Name, e.def.Kind()
	info.PrivilegedWithoutHostDevices = e.def.PrivilegedWithoutHostDevices
	info.PodAnnotations = e.def.PodAnnotations
	info.ContainerAnnotations = e.def.ContainerAnnotations
	return info
}

// report logs what is news.
func (e *entry[H]) report(before, now *trial[H]) {
	if before != nil && before.info.Ready == now.info.Ready && before.info.Reason == now.info.Reason && before.info.Version == now.info.Version {
		return
	}
	log := e.cfg.Log.With("handler", e.def.Name, "path", now.info.Path)
	if now.info.Ready {
		log.Info("runtime handler works", "version", now.info.Version, "took", now.took)
		if flaws := now.info.Flaws; len(flaws) > 0 {
			ids := make([]string, len(flaws))
			for i, f := range flaws {
				ids[i] = f.ID
			}
			log.Warn("this version of the runtime is known for security flaws; upgrade it, unless its distribution has mended them",
				"version", now.info.Version, "flaws", strings.Join(ids, ", "))
		}
		return
	}
	log.Warn("runtime handler does not work", "reason", now.info.Reason)
}

// refusal says why pods do not get a handler that does not work, and whether a
// caller may ask again soon.
func (t *trial[H]) refusal() (string, error) {
	if t.info.Trying {
		return t.info.Reason, errdefs.ErrUnavailable
	}
	why := fmt.Sprintf("%s, since %s", t.info.Reason, t.info.Since.UTC().Format(time.RFC3339))
	if t.info.Late && t.failures < believed {
		return why, errdefs.ErrUnavailable
	}
	return why, errdefs.ErrPrecondition
}

func (t *trial[H]) valid(fingerprint string) bool {
	return t != nil && t.fingerprint == fingerprint && time.Since(t.at) < t.counts
}

// due is when the next trial is, as far as time alone decides.
func (e *entry[H]) due() time.Time {
	t := e.last.Load()
	if t == nil {
		return time.Now()
	}
	return t.at.Add(t.counts)
}
