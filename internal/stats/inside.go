package stats

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"fairlead.run/internal/pod"
)

const (
	// sameAnswer is for how long the answer of a sandbox holds: it is about all
	// containers of the pod, and a list has them one after the other.
	sameAnswer = minWindow
	// patience is how long somebody waits for a sandbox, and doubt for one that did
	// not answer the last time.
	patience = time.Second
	doubt    = 20 * time.Millisecond
	// answerLimit is when a question is given up. Until then nobody asks that
	// sandbox again.
	answerLimit = 10 * time.Second
)

// inside asks sandboxes that have a kernel of their own what the containers in
// them use. One that hangs or talks nonsense delays a list by patience, once, and
// costs nothing but what it should have told.
type inside struct {
	ask  func(ctx context.Context, r *pod.Record) (map[pod.ContainerID]pod.InsideUsage, error)
	log  *slog.Logger
	pods memory[asked]

	mu      sync.Mutex // of what is below
	cancels map[*flight]context.CancelFunc
	stopped bool
	flights sync.WaitGroup
}

// asked is what is known of one pod.
type asked struct {
	now  *flight
	last *flight // the last before now that brought an answer
}

// flight is a question to one sandbox.
type flight struct {
	began    time.Time
	patience time.Duration
	done     chan struct{}
	answer   map[pod.ContainerID]pod.InsideUsage // once done; nil if there was none
}

func newInside(ask func(context.Context, *pod.Record) (map[pod.ContainerID]pod.InsideUsage, error), log *slog.Logger) *inside {
	return &inside{ask: ask, log: log, cancels: map[*flight]context.CancelFunc{}}
}

// run ends with ctx, and with it all questions.
func (s *inside) run(ctx context.Context) {
	<-ctx.Done()
	s.mu.Lock()
	s.stopped = true
	for _, cancel := range s.cancels {
		cancel()
	}
	s.mu.Unlock()
	s.flights.Wait()
}

// begin asks the sandbox of a subject that has one, and waits for nothing: those
// of a list are asked at the same time.
func (s *inside) begin(x pod.Subject) {
	if x.Container != nil && x.Pod.Sandbox.OwnKernel {
		s.question(x.Pod)
	}
}

// of is what the sandbox of a pod says of a container, or what it has said lately
// if it takes its time. What it does not say is nil.
func (s *inside) of(r *pod.Record, id pod.ContainerID) pod.InsideUsage {
	a := s.question(r)
	timer := time.NewTimer(time.Until(a.now.began.Add(a.now.patience)))
	defer timer.Stop()
	select {
	case <-a.now.done:
	case <-timer.C:
	}
	if a.now.over() && a.now.answer != nil {
		return a.now.answer[id]
	}
	if a.last != nil && time.Since(a.last.began) < maxAge {
		return a.last.answer[id]
	}
	return pod.InsideUsage{}
}

// question joins the question that is under way, or takes an answer that still
// holds, or asks.
func (s *inside) question(r *pod.Record) (out asked) {
	now := time.Now()
	s.pods.with(string(r.ID), now, func(a *asked) {
		if a.now == nil || a.now.over() && now.Sub(a.now.began) > sameAnswer {
			next := &flight{began: now, patience: patience, done: make(chan struct{})}
			switch {
			case a.now == nil:
			case a.now.answer == nil:
				next.patience = doubt
			default:
				a.last = a.now
			}
			a.now = next
			s.launch(next, r)
		}
		out = *a
	})
	return out
}

func (s *inside) launch(f *flight, r *pod.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		close(f.done)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
	s.cancels[f] = cancel
	s.flights.Go(func() {
		got, err := s.ask(ctx, r)
		if err != nil {
			s.log.Debug("a sandbox does not tell what its containers use", "pod", r.ID, "error", err)
		} else {
			f.answer = got
		}
		close(f.done)
		cancel()
		s.mu.Lock()
		delete(s.cancels, f)
		s.mu.Unlock()
	})
}

func (f *flight) over() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}
