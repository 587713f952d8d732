package runtime

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"fairlead.run/internal/pod"
)

// Trials of a handler that failed are repeated, because not every cause changes
// its fingerprint, but ever more rarely. So are those that left features untried.
const (
	retryFirst = 10 * time.Second
	retryLast  = 5 * time.Minute
)

// entry is a handler and the result of its last trial.
type entry[H any] struct {
	def    Definition
	kind   Kind[H]
	cfg    Config
	driver H

	last      atomic.Pointer[trial]
	turn      chan struct{} // holds one token while a trial runs
	refreshed background
}

// trial is what one trial found.
type trial struct {
	info        pod.HandlerInfo
	fingerprint string
	at          time.Time
	took        time.Duration
	retry       time.Duration // how long one that is not settled counts
}

func newEntry[H any](d Definition, kind Kind[H], cfg Config) *entry[H] {
	e := &entry[H]{def: d, kind: kind, cfg: cfg, turn: make(chan struct{}, 1)}
	e.driver = kind.Open(d, e.known)
	return e
}

// known is what the last trial found.
func (e *entry[H]) known() pod.HandlerInfo {
	if t := e.last.Load(); t != nil {
		return t.info
	}
	return e.describe(pod.HandlerInfo{Reason: errTried.Error(), Trying: true})
}

// usable is current, except that nobody waits for another trial of a handler that
// works: it can only tell more of its features.
func (e *entry[H]) usable(ctx context.Context) pod.HandlerInfo {
	now := e.kind.Fingerprint(e.def)
	t := e.last.Load()
	if t == nil || t.fingerprint != now || !t.info.Ready {
		return e.current(ctx)
	}
	if !t.valid(now) {
		e.refreshed.run(func() { e.current(context.Background()) })
	}
	return t.info
}

// current is the result of a trial that is still valid; if need be it waits for
// one until ctx ends, and then tells what is known.
func (e *entry[H]) current(ctx context.Context) pod.HandlerInfo {
	now := e.kind.Fingerprint(e.def)
	if t := e.last.Load(); t.valid(now) {
		return t.info
	}
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return e.known()
	}
	before := e.last.Load()
	if before.valid(now) {
		return before.info // another caller tried it
	}
	limit := e.cfg.ProbeTimeout
	if before != nil && before.info.Ready && before.fingerprint == now {
		limit += before.retry // nobody waits for it, and the last one had too little time
	}
	t := e.try(now, limit)
	if before != nil && !t.settled() && before.fingerprint == now {
		t.retry = min(2*before.retry, retryLast)
		if before.info.Ready {
			t.info = before.info // a busy machine takes nothing away that was seen to work
		}
	}
	e.last.Store(t)
	e.report(before, t)
	return t.info
}

// try runs one trial. Its deadline is its own: the caller that happens to be
// the first must not decide for the others how long it takes.
func (e *entry[H]) try(fingerprint string, limit time.Duration) *trial {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	begin := time.Now()
	info := e.describe(e.kind.Probe(ctx, e.def))
	return &trial{info: info, fingerprint: fingerprint, at: time.Now(), took: time.Since(begin), retry: retryFirst}
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
func (e *entry[H]) report(before, now *trial) {
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

func (t *trial) valid(fingerprint string) bool {
	return t != nil && t.fingerprint == fingerprint && (t.settled() || time.Since(t.at) < t.retry)
}

// settled tells whether another trial would find the same.
func (t *trial) settled() bool { return t.info.Ready && !t.info.Features.Unsure }
