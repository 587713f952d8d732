package images

import (
	"sync"
	"time"
)

// What holds a pull back that failed, as a kubelet does it.
const (
	firstDelay = 10 * time.Second
	maxDelay   = 5 * time.Minute
	rest       = 2 * maxDelay // after which a failure is forgotten
)

// attempt is a pod's try to have an image.
type attempt struct{ pod, image string }

// failures holds back what failed.
type failures struct {
	mu   sync.Mutex
	last map[attempt]*failure
}

type failure struct {
	*Error
	at    time.Time
	delay time.Duration
}

// holds returns the failure for which an attempt has to wait, or nil. What did
// not reach a registry has to wait for nothing.
func (f *failures) holds(a attempt) *failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.last[a]
	if last == nil || !last.pulled() || !time.Now().Before(last.Until) {
		return nil
	}
	return last
}

func (f *failure) pulled() bool {
	return f.Reason != ErrImageNeverPull && f.Reason != ImageInspectError
}

// add notes a failure, and sets when to try again.
func (f *failures) add(a attempt, e *Error) *Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for k, old := range f.last {
		if now.Sub(old.at) > rest {
			delete(f.last, k)
		}
	}
	delay := firstDelay
	if old := f.last[a]; old != nil {
		delay = old.delay
		if !now.Before(old.Until) { // and not asked early
			delay = min(2*old.delay, maxDelay)
		}
	}
	e.Until = now.Add(delay)
	f.last[a] = &failure{Error: e, at: now, delay: delay}
	return e
}

func (f *failures) forget(a attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.last, a)
}
