package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.run/internal/errdefs"
)

type counter struct {
	at  []time.Time
	err error
}

func (c *counter) String() string { return "test" }

func (c *counter) Restart(context.Context) error {
	c.at = append(c.at, time.Now())
	return c.err
}

var errDown = fmt.Errorf("nobody answers: %w", errdefs.ErrUnavailable)

// run monitors for a while in which the runtime answers as ask says.
func run(t *testing.T, c *counter, length time.Duration, ask func(since time.Duration) error) []time.Duration {
	t.Helper()
	var out []time.Duration
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), length)
		defer cancel()
		m := Monitor{Restarter: c, Log: slog.New(slog.DiscardHandler), Ask: func(context.Context) error { return ask(time.Since(began)) }}
		if err := m.Run(ctx); err != nil {
			t.Fatal(err)
		}
		for _, at := range c.at {
			out = append(out, at.Sub(began))
		}
	})
	return out
}

func TestOneThatAnswersIsLeftAlone(t *testing.T) {
	if got := run(t, &counter{}, time.Hour, func(time.Duration) error { return nil }); len(got) > 0 {
		t.Fatalf("restarted at %v", got)
	}
}

func TestOneThatIsNotReadyIsLeftAlone(t *testing.T) {
	if got := run(t, &counter{}, time.Hour, func(time.Duration) error { return errors.New("no network") }); len(got) > 0 {
		t.Fatalf("restarted at %v", got)
	}
}

func TestAShortSilenceIsLeftAlone(t *testing.T) {
	got := run(t, &counter{}, time.Hour, func(since time.Duration) error {
		if since%(2*time.Minute) < 50*time.Second {
			return errDown
		}
		return nil
	})
	if len(got) > 0 {
		t.Fatalf("restarted at %v", got)
	}
}

func TestRestartsAndBacksOff(t *testing.T) {
	for _, c := range []*counter{{}, {err: errors.New("no systemd")}} {
		got := run(t, c, 20*time.Minute, func(time.Duration) error { return errDown })
		want := []time.Duration{time.Minute, 3 * time.Minute, 7 * time.Minute, 15 * time.Minute}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("restarted at %v, want %v", got, want)
		}
	}
}

func TestARestartIsLeftToAnInstaller(t *testing.T) {
	for _, c := range []struct {
		name  string
		until time.Duration // as long as an installer is at work
		err   error         // why they are not kept away
		want  string
	}{
		{"until it has ended", 3 * time.Minute, errDown, "[3m0s 5m0s 9m0s]"},
		{"for ten minutes", time.Hour, errDown, "[11m0s]"},
		{"not if it is not known", time.Hour, errors.New("read-only file system"), "[1m0s 3m0s 7m0s]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, held := time.Now(), 0
				ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
				defer cancel()
				var got []time.Duration
				restarter := restarts(func() {
					if got = append(got, time.Since(began)); time.Since(began) >= c.until && held != 1 {
						t.Error("restarted while installers are not kept away")
					}
				})
				m := Monitor{
					Restarter: restarter, Log: slog.New(slog.DiscardHandler), Ask: func(context.Context) error { return errDown },
					KeepAway: func() (func(), error) {
						if time.Since(began) < c.until {
							return nil, c.err
						}
						held++
						return func() { held-- }, nil
					},
				}
				if err := m.Run(ctx); err != nil || fmt.Sprint(got) != c.want || held != 0 {
					t.Fatalf("%v: restarted at %v, want %s; %d were not given back", err, got, c.want, held)
				}
			})
		})
	}
}

type restarts func()

func (restarts) String() string { return "test" }

func (r restarts) Restart(context.Context) error {
	r()
	return nil
}

func TestAnAnswerBeginsAnew(t *testing.T) {
	got := run(t, &counter{}, 10*time.Minute, func(since time.Duration) error {
		if since == 2*time.Minute {
			return nil
		}
		return errDown
	})
	if len(got) < 2 || got[0] != time.Minute || got[1] != 3*time.Minute+10*time.Second {
		t.Fatalf("restarted at %v", got)
	}
}
