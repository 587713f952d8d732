package again

import (
	"context"
	"errors"
	"log/slog"
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
		tries := map[string]int{}
		add := func(name string, fails int) {
			l.Add(name, func(context.Context) error {
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
