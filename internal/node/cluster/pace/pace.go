// Package pace says how long to wait before a request that failed is made again:
// longer each time, and never less than the API server asks for.
package pace

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Pace doubles from First up to Most. The zero value begins with 200 ms and ends
// with 10 s.
type Pace struct {
	First, Most time.Duration

	next time.Duration
}

// After is how long to wait after this failure.
func (p *Pace) After(err error) time.Duration {
	if p.First == 0 {
		p.First = 200 * time.Millisecond
	}
	if p.Most == 0 {
		p.Most = 10 * time.Second
	}
	p.next = min(max(2*p.next, p.First), p.Most)
	out := wait.Jitter(p.next, 0.2)
	if seconds, asked := apierrors.SuggestsClientDelay(err); asked {
		out = max(out, time.Duration(seconds)*time.Second)
	}
	return out
}

// Reset is for after a success.
func (p *Pace) Reset() { p.next = 0 }

// Sleep waits, and says whether ctx has not ended meanwhile.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
