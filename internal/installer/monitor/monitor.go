// Package monitor restarts a CRI runtime that does not answer any more.
//
// It asks for the runtime's status every ten seconds and restarts it when it has
// been without one for a minute, ever more rarely if that does not help. A runtime
// that answers and says that it is not ready is not restarted for that: it waits
// for something, such as a network, that a restart does not bring.
package monitor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/installer/restart"
)

// The pauses.
const (
	Every   = 10 * time.Second
	After   = time.Minute
	longest = 10 * time.Minute
)

// Monitor looks after one runtime.
type Monitor struct {
	// Ask is nil if the runtime answers and is ready.
	Ask func(ctx context.Context) error
	// Restarter restarts it.
	Restarter restart.Restarter
	// Log gets what happens.
	Log *slog.Logger
	// Every is how often it is asked, and After how long it may be without an
	// answer. Zero values are those of this package.
	Every, After time.Duration
}

// Run monitors until the context ends.
func (m *Monitor) Run(ctx context.Context) error {
	s := state{after: m.After}
	every := m.Every
	if every == 0 {
		every = Every
	}
	if s.after == 0 {
		s.after = After
	}
	for {
		err := m.Ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		switch s.next(err, time.Now()) {
		case wentAway:
			m.Log.Warn("the runtime does not answer", "err", err)
		case cameBack:
			m.Log.Info("the runtime answers again")
		case restartNow:
			m.Log.Error("restarting the runtime, which has not answered for too long", "how", m.Restarter.String(), "times", s.restarts, "err", err)
			if err := m.Restarter.Restart(ctx); err != nil && ctx.Err() == nil {
				m.Log.Error("the runtime was not restarted", "err", err)
			}
		case nothing:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// action is what follows from one answer.
type action int

const (
	nothing action = iota
	wentAway
	cameBack
	restartNow
)

// state is what the monitor remembers.
type state struct {
	after    time.Duration
	since    time.Time // of the first missing answer; zero if there was one
	due      time.Time // of the next restart
	restarts int       // since it answered last
}

// next decides, and remembers that.
func (s *state) next(err error, now time.Time) action {
	if err == nil || !errors.Is(err, errdefs.ErrUnavailable) {
		away := !s.since.IsZero()
		s.since, s.restarts = time.Time{}, 0
		if away {
			return cameBack
		}
		return nothing
	}
	if s.since.IsZero() {
		s.since, s.due = now, now.Add(s.after)
		return wentAway
	}
	if now.Before(s.due) {
		return nothing
	}
	s.restarts++
	s.due = now.Add(min(s.after<<min(s.restarts, 10), longest))
	return restartNow
}
