package again

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestTriesUntilItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx, slog.New(slog.DiscardHandler)) }()
		var mu sync.Mutex // each is tried by a goroutine of its own
		tries := map[string]int{}
		add := func(name string, fails int) {
			l.Add(name, func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				if tries[name]++; tries[name] <= fails {
					return errors.New("not yet")
				}
				return nil
			})
		}
		add("one", 3)
		time.Sleep(againFirst / 2)
		add("two", 0)
		time.Sleep(time.Minute)
		synctest.Wait()
		if tries["one"] != 4 || tries["two"] != 1 {
			t.Errorf("tries %v", tries)
		}
		// After everything was done, it still takes up what comes.
		add("three", 1)
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; err != nil || tries["three"] != 2 || tries["one"] != 4 {
			t.Errorf("tries %v, %v", tries, err)
		}
	})
}

// One that hangs keeps nothing else from being tried, and is not begun a second
// time; nor does it keep Run from ending.
func TestOneHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx, slog.New(slog.DiscardHandler)) }()
		release := make(chan struct{})
		var hung, other atomic.Int32
		l.Add("hangs", func(context.Context) error {
			hung.Add(1)
			<-release
			return nil
		})
		time.Sleep(time.Minute)
		l.Add("other", func(context.Context) error {
			if other.Add(1) < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		time.Sleep(time.Hour)
		synctest.Wait()
		if hung.Load() != 1 || other.Load() != 3 {
			t.Errorf("%d and %d tries", hung.Load(), other.Load())
		}
		if got := l.underWay(); !slices.Equal(got, []string{"hangs"}) {
			t.Errorf("under way: %v", got)
		}
		cancel()
		began := time.Now()
		if err := <-done; err != nil || time.Since(began) != leaveTimeout {
			t.Errorf("ended after %s: %v", time.Since(began), err)
		}
		close(release)
	})
}

// More that hang than are tried at once delay the others, but do not stop them.
func TestManyHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx, slog.New(slog.DiscardHandler)) }()
		var begun atomic.Int32
		for i := range 3 * together {
			l.Add(string(rune('A'+i)), func(ctx context.Context) error {
				begun.Add(1)
				<-ctx.Done()
				return nil
			})
		}
		time.Sleep(againFirst + slow/2)
		if n := begun.Load(); n != together {
			t.Errorf("%d were begun together", n)
		}
		time.Sleep(2 * slow)
		if n := begun.Load(); n != 3*together {
			t.Errorf("%d were begun", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A try has a limit, after which the next one follows.
func TestTryHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx, slog.New(slog.DiscardHandler)) }()
		var tries atomic.Int32
		l.Add("waits", func(ctx context.Context) error {
			if tries.Add(1) == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		time.Sleep(tryTimeout + 2*againLast)
		if n := tries.Load(); n != 2 {
			t.Errorf("%d tries", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
