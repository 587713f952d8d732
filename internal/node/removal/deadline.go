package removal

import (
	"context"
	"math"
	"sync"
	"time"
)

// least is how many seconds a container has to end after its preStop hook, even if
// that took all of its time. It is the kubelet's.
const least = 2

// Deadline is when containers have to have ended that were told to. It can be
// brought forward while they are at it.
type Deadline struct {
	mu    sync.Mutex
	at    time.Time
	least int64         // seconds; 0 once nobody wants to wait
	moved chan struct{} // closed when it is brought forward
}

// In is a deadline so many seconds from now. With 0 nobody waits.
func In(grace int64) *Deadline {
	grace = max(grace, 0)
	return &Deadline{at: time.Now().Add(time.Duration(grace) * time.Second), least: min(grace, least), moved: make(chan struct{})}
}

// Sooner brings a deadline forward to so many seconds from now, and says whether
// that is sooner than it was.
func (d *Deadline) Sooner(grace int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := time.Now().Add(time.Duration(max(grace, 0)) * time.Second)
	if d.least == 0 || !at.Before(d.at) {
		return false
	}
	d.at, d.least = at, min(max(grace, 0), least)
	close(d.moved)
	d.moved = make(chan struct{})
	return true
}

// AfterHook leaves at least 2 seconds to what has run a preStop hook, however short
// its grace period was.
func (d *Deadline) AfterHook() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.least > 0 {
		d.least = least
	}
}

// now is how many seconds are left, and a channel that is closed when that becomes
// less.
func (d *Deadline) now() (seconds int64, moved <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := int64(math.Ceil(time.Until(d.at).Seconds()))
	return max(left, d.least), d.moved
}

// Left is how many whole seconds are left: at least 2 unless nobody waits.
func (d *Deadline) Left() int64 {
	seconds, _ := d.now()
	return seconds
}

// Within is a context that ends at the deadline, wherever that is moved to.
func (d *Deadline) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	seconds, moved := d.now()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
	go func() {
		var sooner <-chan time.Time
		for {
			select {
			case <-moved:
				seconds, moved = d.now()
				sooner = time.After(time.Duration(seconds) * time.Second)
			case <-sooner:
				cancel()
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}
