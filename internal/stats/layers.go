package stats

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// A layer is walked again when it was asked about, freshFor has passed since the
// last walk, and restFactor times what that took. After each walk there is a
// rest as long as the walk. So layers cost at most half a processor, and each
// of them a small part of one, whatever containers write and whoever asks.
const (
	freshFor   = time.Second
	restFactor = 20
)

// layers knows how large writable layers were when they were walked last.
type layers struct {
	walk func(ctx context.Context, id pod.ContainerID) (bytes, inodes int64, err error)
	path string
	log  *slog.Logger

	memory memory[layer]
	mu     sync.Mutex
	queue  []pod.ContainerID
	ended  chan struct{} // closed and made anew at the end of each walk
	wake   chan struct{}
}

type layer struct {
	usage  *pod.LayerUsage
	queued bool
	walked bool
	rested time.Time // when it may be walked again
}

func newLayers(walk func(context.Context, pod.ContainerID) (int64, int64, error), path string, log *slog.Logger) *layers {
	return &layers{walk: walk, path: path, log: log, ended: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// of is what is known of a layer, or nil, and asks for more.
func (l *layers) of(id pod.ContainerID) (out *pod.LayerUsage) {
	now := time.Now()
	ask := false
	l.memory.with(string(id), now, func(y *layer) {
		out = y.usage
		if !y.queued && !now.Before(y.rested) {
			y.queued, ask = true, true
		}
	})
	if ask {
		l.push(id)
	}
	return out
}

// last is what is known of a layer, or nil.
func (l *layers) last(id pod.ContainerID) (out *pod.LayerUsage) {
	l.memory.update(string(id), func(y *layer) { out = y.usage })
	return out
}

// walked says whether the layer was walked, or need not be waited for.
func (l *layers) walked(id pod.ContainerID) bool {
	out := true
	l.memory.update(string(id), func(y *layer) { out = y.walked })
	return out
}

// await waits for the end of the first walk through a layer that was asked
// about. It returns false when ctx ends before.
func (l *layers) await(ctx context.Context, id pod.ContainerID) bool {
	for {
		l.mu.Lock()
		ended := l.ended
		l.mu.Unlock()
		if l.walked(id) {
			return true
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return false
		}
	}
}

func (l *layers) push(id pod.ContainerID) {
	l.mu.Lock()
	l.queue = append(l.queue, id)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *layers) pop() (id pod.ContainerID, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		l.queue = nil // and what it had grown to
		return "", false
	}
	id, l.queue = l.queue[0], l.queue[1:]
	return id, true
}

// run walks the layers that were asked for, one after the other.
func (l *layers) run(ctx context.Context) {
	for ctx.Err() == nil {
		id, ok := l.pop()
		if !ok {
			select {
			case <-l.wake:
			case <-ctx.Done():
			}
			continue
		}
		select {
		case <-time.After(l.measure(ctx, id)):
		case <-ctx.Done():
		}
	}
}

func (l *layers) measure(ctx context.Context, id pod.ContainerID) (took time.Duration) {
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		close(l.ended)
		l.ended = make(chan struct{})
	}()
	began := time.Now()
	bytes, inodes, err := l.walk(ctx, id)
	took = time.Since(began)
	switch {
	case ctx.Err() != nil:
		return 0
	case errors.Is(err, errdefs.ErrNotFound):
		l.memory.drop(string(id))
		return took
	case err != nil:
		l.log.Debug("a writable layer cannot be measured", "container", id, "error", err)
	}
	l.memory.update(string(id), func(y *layer) {
		y.queued, y.walked, y.rested = false, true, time.Now().Add(max(freshFor, restFactor*took))
		y.usage = nil // rather than what may be long out of date
		if err == nil {
			y.usage = &pod.LayerUsage{At: began, Path: l.path, Bytes: uint64(max(bytes, 0)), Inodes: uint64(max(inodes, 0))}
		}
	})
	return took
}
