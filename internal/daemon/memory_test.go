package daemon

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestRestComesAfterWork(t *testing.T) {
	var rests atomic.Int32
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		busy, done := make(chan struct{}, 1), make(chan struct{})
		go func() {
			defer close(done)
			rest(ctx, busy, func() { rests.Add(1) })
		}()
		for range 10 {
			time.Sleep(restful / 2)
			busy <- struct{}{}
		}
		synctest.Wait()
		if n := rests.Load(); n != 0 {
			t.Errorf("%d rests in the middle of work", n)
		}
		for range 2 { // once, however long it lasts
			time.Sleep(time.Hour)
			synctest.Wait()
			if n := rests.Load(); n != 1 {
				t.Errorf("%d rests after work", n)
			}
		}
		cancel()
		<-done
	})
}
