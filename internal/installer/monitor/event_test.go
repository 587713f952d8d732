package monitor

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestEventsAreKeptAndBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "events")
	if all, err := Read(path); err != nil || all != nil {
		t.Fatalf("%v %v", all, err)
	}
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for n := range keep + 3 {
		if err := Append(path, Event{Time: began.Add(time.Duration(n) * time.Hour), Reason: Restarted, Times: n}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := Read(path)
	if err != nil || len(all) != keep || all[0].Times != 3 || all[keep-1].Times != keep+2 {
		t.Fatalf("%d events, %+v, %v", len(all), all, err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append([]byte("garbage\n{}\n"), data...), 0o644); err != nil {
		t.Fatal(err)
	}
	if again, err := Read(path); err != nil || len(again) != keep {
		t.Fatalf("with garbage %d are read: %v", len(again), err)
	}
}

// Each restart is reported, one that fails as well.
func TestRestartsAreReported(t *testing.T) {
	for want, fails := range map[string]error{Restarted: nil, RestartFailed: errors.New("no systemd")} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			var told []Event
			m := Monitor{
				Restarter: &counter{err: fails}, Log: slog.New(slog.DiscardHandler), Ask: func(context.Context) error { return errDown },
				Report: func(e Event) error { told = append(told, e); return errors.New("the disk is full") },
			}
			if err := m.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if len(told) != 1 || told[0].Reason != want || told[0].Silent != "1m0s" || !strings.HasPrefix(told[0].String(), want+": ") {
				t.Errorf("%+v", told)
			}
		})
	}
}
