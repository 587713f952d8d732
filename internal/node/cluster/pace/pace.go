// Package pace says how long to wait before a request that failed is made again:
// longer each time, and never less than the API server asks for. It knows, too, which
// failures are no more than that the API server is away.
package pace

import (
	"context"
	"errors"
	"net/url"
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

// Away says of a failure that the API server does not answer, or is too busy to. Everybody
// knows that already, and it is nothing to tell of each object.
func Away(err error) bool {
	var transport *url.Error
	return errors.As(err, &transport) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err)
}

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
