package slots

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlots wants no more at a time than there are slots, if nobody hangs.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := New(2), time.Now()
		first, err := s.Take(t.Context(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Take(t.Context(), time.Second); err != nil { // it is never given back by a call
			t.Fatal(err)
		}
		time.AfterFunc(300*time.Millisecond, func() {
			if !first() {
				t.Error("it was given back in time, and says that it was not")
			}
		})
		for _, want := range []time.Duration{300 * time.Millisecond, time.Second, 1300 * time.Millisecond} {
			if _, err := s.Take(t.Context(), time.Second); err != nil || time.Since(began) != want {
				t.Errorf("a slot after %s, want %s: %v", time.Since(began), want, err)
			}
		}
		time.Sleep(time.Minute)
		if first() { // once more, which gives back nobody else's
			t.Error("it was given back twice")
		}
		for range 2 {
			if _, err := s.Take(t.Context(), time.Second); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := s.Take(ctx, time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a third slot: %v", err)
		}
		time.Sleep(time.Minute)
	})
}
