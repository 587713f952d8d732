package load

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Serial starts and ends n pods, one after the other, and executes in each of them.
func (t Target) Serial(ctx context.Context, n, execs int) error {
	for range n {
		p, err := t.Up(ctx)
		if err != nil {
			return err
		}
		for range execs {
			if err := t.Exec(ctx, p); err != nil {
				return err
			}
		}
		if err := t.Down(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// Twins starts and ends n pods of two containers each, one after the other.
func (t Target) Twins(ctx context.Context, n int) error {
	for range n {
		p, err := t.Up(ctx)
		if err != nil {
			return err
		}
		if err := t.Grow(ctx, p); err != nil {
			return err
		}
		if err := t.Exec(ctx, p); err != nil {
			return err
		}
		if err := t.Down(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// Parallel starts n pods by so many clients at once, and when all run, ends
// them in the same way.
func (t Target) Parallel(ctx context.Context, clients, n int) error {
	pods, err := t.UpAll(ctx, clients, n)
	if err != nil {
		return err
	}
	return t.DownAll(ctx, clients, pods)
}

// UpAll starts n pods by so many clients at once.
func (t Target) UpAll(ctx context.Context, clients, n int) ([]*Pod, error) {
	pods := make([]*Pod, n)
	err := each(clients, n, func(i int) (err error) {
		pods[i], err = t.Up(ctx)
		return err
	})
	return pods, err
}

// GrowAll starts one more container in each pod, by so many clients at once.
func (t Target) GrowAll(ctx context.Context, clients int, pods []*Pod) error {
	return each(clients, len(pods), func(i int) error { return t.Grow(ctx, pods[i]) })
}

// DownAll ends pods by so many clients at once.
func (t Target) DownAll(ctx context.Context, clients int, pods []*Pod) error {
	return each(clients, len(pods), func(i int) error { return t.Down(ctx, pods[i]) })
}

// each calls f with 0 to n-1, by so many goroutines. Each of these ends at its
// first error.
func each(clients, n int, f func(int) error) error {
	var next atomic.Int64
	var mu sync.Mutex
	var failed []error
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					mu.Lock()
					failed = append(failed, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}

// Sustain lets so many clients start and end pods for a time, and returns how
// many whole lives of pods there were in a second.
func (t Target) Sustain(ctx context.Context, clients int, d time.Duration) (float64, error) {
	begin := time.Now()
	var done atomic.Int64
	err := each(clients, clients, func(int) error {
		for time.Since(begin) < d {
			p, err := t.Up(ctx)
			if err != nil {
				return err
			}
			if err := t.Down(ctx, p); err != nil {
				return err
			}
			done.Add(1)
		}
		return nil
	})
	return float64(done.Load()) / time.Since(begin).Seconds(), err
}
