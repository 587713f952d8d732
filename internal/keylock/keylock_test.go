package keylock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func lock(t *testing.T, l *Locks[string], key string) func() {
	t.Helper()
	unlock, err := l.Lock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return unlock
}

func TestOneHolderPerKey(t *testing.T) {
	var l Locks[int]
	var wg sync.WaitGroup
	counts := make([]int, 3) // each guarded by the lock of its index
	for i := range 300 {
		wg.Go(func() {
			unlock, err := l.Lock(t.Context(), i%3)
			if err != nil {
				t.Error(err)
				return
			}
			defer unlock()
			counts[i%3]++
		})
	}
	wg.Wait()
	if want := []int{100, 100, 100}; !slices.Equal(counts, want) {
		t.Fatalf("counts = %v, want %v", counts, want)
	}
	if len(l.queues) != 0 {
		t.Fatalf("%d keys were kept", len(l.queues))
	}
}

func TestKeysDoNotWaitForEachOther(t *testing.T) {
	var l Locks[string]
	defer lock(t, &l, "a")()
	lock(t, &l, "b")()
}

func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Locks[string]
		var order []int // guarded by the lock
		unlock := lock(t, &l, "a")
		for i := range 10 {
			go func() {
				defer lock(t, &l, "a")()
				order = append(order, i)
			}()
			synctest.Wait()
		}
		unlock()
		synctest.Wait()
		if want := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}; !slices.Equal(order, want) {
			t.Fatalf("order = %v, want %v", order, want)
		}
	})
}

func TestWaiterLeavesWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Locks[string]
		unlock := lock(t, &l, "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Lock(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("err = %v, want a deadline", err)
		}
		unlock()
		if len(l.queues) != 0 {
			t.Fatalf("%d keys were kept", len(l.queues))
		}
	})
}

func TestEndedContextGetsNoFreeLock(t *testing.T) {
	var l Locks[string]
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("gone")
	cancel(cause)
	if _, err := l.Lock(ctx, "a"); !errors.Is(err, cause) {
		t.Fatalf("err = %v, want the cause", err)
	}
	if len(l.queues) != 0 {
		t.Fatal("the key was taken")
	}
}

// A waiter that gives up just after the lock was handed to it must pass it on.
func TestHandOverToALeaverIsPassedOn(t *testing.T) {
	var l Locks[string]
	unlock := lock(t, &l, "a")
	leaver := l.join("a")
	next := l.join("a")
	unlock()
	<-leaver
	l.leave("a", leaver)
	select {
	case <-next:
	default:
		t.Fatal("the lock died with the waiter that left")
	}
}

func TestUnlockTwiceIsHarmless(t *testing.T) {
	var l Locks[string]
	unlock := lock(t, &l, "a")
	unlock()
	second := lock(t, &l, "a")
	unlock()
	if len(l.queues) != 1 {
		t.Fatal("the second call took the lock from its new holder")
	}
	second()
}

func BenchmarkFree(b *testing.B) {
	var l Locks[string]
	for b.Loop() {
		unlock, err := l.Lock(b.Context(), "a")
		if err != nil {
			b.Fatal(err)
		}
		unlock()
	}
}
