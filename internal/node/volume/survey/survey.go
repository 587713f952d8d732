// Package survey measures the volumes of pods for all who want to know: the summary of the
// node, its metrics and evictions. Each volume is measured by itself, so that one whose file
// system hangs hides and delays no other, and at most as often as they agree on: what was
// measured lately is the answer. It decides nothing by what it finds.
package survey

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/slots"
	"fairlead.run/internal/node/volume"
)

const (
	// Rest is how long an answer is good for who needs no newer one. It is a kubelet's.
	Rest = time.Minute
	// Patience is how long a measurement is waited for, from its beginning.
	Patience = 2 * time.Second
	// restPerWork bounds what measuring costs who wants it often: a volume rests for so many
	// times as long as the walk through it took, though no longer than Rest.
	restPerWork = 20
	// parallel is how many are measured at the same time, each on a thread of its own. One
	// that takes longer than Patience does not count any more.
	parallel = 8
)

// Ask says what is wanted.
type Ask struct {
	// Age is how old an answer may be; zero is Rest.
	Age time.Duration
	// Patience is in the place of the constant, if it is not zero.
	Patience time.Duration
	// Only are the volumes that matter; nil for all of all pods.
	Only func(pod types.UID, u volume.Usage) bool
}

// Pod is what its volumes take, in their order. Those are missing that could not be measured,
// of which Err tells, and those that are not there. One that hangs is as it was before.
type Pod struct {
	Volumes []volume.Usage
	Err     error
}

// Survey keeps what was measured. Make it by New.
type Survey struct {
	list  func() map[types.UID][]volume.Part
	slots *slots.Slots

	mu      sync.Mutex
	known   map[key]*entry
	closed  bool
	working sync.WaitGroup
}

type key struct {
	pod    types.UID
	volume string
}

// entry is a volume.
type entry struct {
	last volume.Usage // zero if it is not known
	err  error        // of the last measurement
	next time.Time    // when it may be measured again, whoever asks
	over time.Time    // when the last measurement was

	began  time.Time // of the one that is under way
	done   chan struct{}
	cancel context.CancelFunc // nil if none is
}

// New makes one of the volumes that list tells of. What is in it no more is forgotten.
func New(list func() map[types.UID][]volume.Part) *Survey {
	return &Survey{list: list, slots: slots.New(parallel), known: map[key]*entry{}}
}

// Run returns when ctx has ended and nothing is measured any more. Threads stay that a file
// system holds up.
func (s *Survey) Run(ctx context.Context) error {
	<-ctx.Done()
	s.mu.Lock()
	s.closed = true
	s.keep(nil)
	s.mu.Unlock()
	s.working.Wait()
	return nil
}

// Usage is what volumes take. It measures those that were not for too long, and waits for
// them as long as the patience lasts, for all together.
func (s *Survey) Usage(ctx context.Context, ask Ask) map[types.UID]Pod {
	if ask.Age == 0 {
		ask.Age = Rest
	}
	if ask.Patience == 0 {
		ask.Patience = Patience
	}
	all := s.list()
	s.await(ctx, s.begin(all, ask))
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[types.UID]Pod, len(all))
	for pod, parts := range all {
		var p Pod
		var errs []error
		for _, part := range parts {
			e := s.known[key{pod, part.Volume}]
			if e == nil || !ask.wants(pod, part.Usage) {
				continue
			}
			if !e.last.At.IsZero() {
				p.Volumes = append(p.Volumes, e.last)
			}
			errs = append(errs, e.fault(part.Volume))
		}
		p.Err = errors.Join(errs...)
		out[pod] = p
	}
	return out
}

func (a Ask) wants(pod types.UID, u volume.Usage) bool { return a.Only == nil || a.Only(pod, u) }

// fault is why a volume is not known as it is.
func (e *entry) fault(name string) error {
	if e.cancel == nil {
		return e.err
	}
	if passed := time.Since(e.began); passed >= Patience {
		return fmt.Errorf("measure volume %s: it takes longer than %s: %w", name, passed.Round(time.Second), errdefs.ErrUnavailable)
	}
	return nil
}

// wait is for one measurement.
type wait struct {
	done  chan struct{}
	until time.Time
}

// begin measures what has to be, and forgets what is gone.
func (s *Survey) begin(all map[types.UID][]volume.Part, ask Ask) []wait {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.keep(all)
	var out []wait
	for pod, parts := range all {
		for _, part := range parts {
			if !ask.wants(pod, part.Usage) {
				continue
			}
			e := s.known[key{pod, part.Volume}]
			if e == nil {
				e = &entry{}
				s.known[key{pod, part.Volume}] = e
			}
			if e.cancel == nil && !s.closed && !now.Before(e.next) && now.Sub(e.over) >= ask.Age {
				s.start(e, part, now)
			}
			if e.cancel != nil {
				out = append(out, wait{e.done, e.began.Add(ask.Patience)})
			}
		}
	}
	return out
}

// keep forgets all entries but those of these parts. The caller has the lock.
func (s *Survey) keep(all map[types.UID][]volume.Part) {
	maps.DeleteFunc(s.known, func(k key, e *entry) bool {
		gone := !slices.ContainsFunc(all[k.pod], func(p volume.Part) bool { return p.Volume == k.volume })
		if gone && e.cancel != nil {
			e.cancel()
		}
		return gone
	})
}

// start measures one. The caller has the lock.
func (s *Survey) start(e *entry, part volume.Part, now time.Time) {
	ctx, cancel := context.WithCancel(context.Background()) // of no caller: others want to know, too
	e.began, e.done, e.cancel = now, make(chan struct{}), cancel
	s.working.Go(func() {
		defer cancel()
		u, took, err := s.measure(ctx, part)
		s.mu.Lock()
		defer s.mu.Unlock()
		e.last, e.err, e.over, e.cancel = u, err, time.Now(), nil
		e.next = e.over.Add(min(restPerWork*took, Rest))
		close(e.done)
	})
}

func (s *Survey) measure(ctx context.Context, part volume.Part) (volume.Usage, time.Duration, error) {
	release, err := s.slots.Take(ctx, Patience)
	if err != nil {
		return volume.Usage{}, 0, err
	}
	defer release()
	began := time.Now()
	u, err := part.Measure(ctx)
	return u, time.Since(began), err
}

// await waits until all are done, or their time is over.
func (s *Survey) await(ctx context.Context, all []wait) {
	for _, w := range all {
		left := time.NewTimer(time.Until(w.until))
		select {
		case <-w.done:
		case <-left.C:
		case <-ctx.Done():
		}
		left.Stop()
	}
}
