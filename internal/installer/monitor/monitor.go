// Package monitor restarts a CRI runtime that does not answer any more.
//
// It asks for the runtime's status every ten seconds and restarts it when it has
// been without one for a minute, ever more rarely if that does not help. A runtime
// that answers and says that it is not ready is not restarted for that: it waits
// for something, such as a network, that a restart does not bring. While an installer
// is at work on the node it is left to that one, which restarts it itself and judges
// by the answers whether what it has written holds.
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
	// patience is how long a due restart is left to an installer: longer than one takes
	// that restarts the runtime twice and waits for it each time.
	patience = 10 * time.Minute
)

// Monitor looks after one runtime.
type Monitor struct {
	// Ask wraps errdefs.ErrUnavailable if the runtime does not answer.
	Ask func(ctx context.Context) error
	// Restarter restarts it.
	Restarter restart.Restarter
	// KeepAway keeps installers away while the runtime is restarted, until it is given back.
	// It wraps errdefs.ErrUnavailable while one is at work. It may be nil.
	KeepAway func() (giveBack func(), err error)
	// Log gets what happens, and Report what is to be told of it, if it is not nil.
	Log    *slog.Logger
	Report func(Event) error
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
			m.restart(ctx, &s, err)
		case nothing:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// restart restarts the runtime and tells that, unless an installer is at work.
func (m *Monitor) restart(ctx context.Context, s *state, why error) {
	now := time.Now()
	giveBack, ok := m.keepAway(now.Sub(s.due))
	if !ok {
		return // the next look tries again
	}
	defer giveBack()
	s.restarted(now)
	m.Log.Error("restarting the runtime, which has not answered for too long", "how", m.Restarter.String(), "times", s.restarts, "err", why)
	e := Event{Time: now, Reason: Restarted, Silent: now.Sub(s.since).Round(time.Second).String(), Times: s.restarts, How: m.Restarter.String()}
	if err := m.Restarter.Restart(ctx); err != nil {
		if ctx.Err() != nil {
			return
		}
		m.Log.Error("the runtime was not restarted", "err", err)
		e.Reason, e.Error = RestartFailed, err.Error()
	}
	if m.Report == nil {
		return
	}
	if err := m.Report(e); err != nil {
		m.Log.Error("the restart could not be reported", "err", err)
	}
}

// keepAway keeps installers away. It is not ok while one is at work, as long as that may
// be what keeps the runtime from answering. If it fails otherwise the runtime is
// restarted all the same: it is down.
func (m *Monitor) keepAway(late time.Duration) (giveBack func(), ok bool) {
	if m.KeepAway == nil {
		return func() {}, true
	}
	giveBack, err := m.KeepAway()
	switch {
	case err == nil:
		return giveBack, true
	case errors.Is(err, errdefs.ErrUnavailable) && late < patience:
		m.Log.Warn("the runtime is not restarted yet", "why", err, "for", late.Round(time.Second), "atMost", patience)
		return nil, false
	}
	m.Log.Warn("installers are not kept away from the restart", "err", err)
	return func() {}, true
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

// next says what to do. A restart is due until restarted is called.
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
	return restartNow
}

// restarted remembers a restart.
func (s *state) restarted(now time.Time) {
	s.restarts++
	s.due = now.Add(min(s.after<<min(s.restarts, 10), longest))
}
