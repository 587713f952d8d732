package runtime

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.run/internal/errdefs"

	"fairlead.run/internal/pod"
	"fairlead.run/internal/stage"
)

// Every handler is tried again each hour, give or take a tenth, and one that
// fails then is taken from the pods only when it fails again and again.
func TestVerifiedEveryHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab()
		r := l.registry(t, Config{Wanted: Wanted{Handlers: configured("crun")}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		state := func() pod.HandlerState { i := r.List()[0]; return i.State() }
		expect := func(after time.Duration, least, most int32, want pod.HandlerState) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := l.trials.Load(); got < least || got > most || state() != want {
				t.Errorf("%d trials and %s, want %d to %d and %s", got, state(), least, most, want)
			}
		}
		expect(0, 1, 1, pod.HandlerReady)
		expect(53*time.Minute, 1, 1, pod.HandlerReady)
		expect(14*time.Minute, 2, 2, pod.HandlerReady)
		l.change("crun", "it fails now", "")
		first := r.List()[0].VerifiedAt
		expect(67*time.Minute, 5, 12, pod.HandlerFailed) // it is tried again soon, then ever more rarely
		if i := r.List()[0]; i.Reason != "it fails now" || !i.VerifiedAt.After(first) {
			t.Errorf("%+v", i)
		}
		l.change("crun", "", "")
		before := l.trials.Load()
		expect(6*time.Minute, before+1, before+1, pod.HandlerReady)
		cancel()
		<-ended
	})
}

// One failure in between changes nothing for pods.
func TestOneFailureOfAHandlerThatWorked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab()
		r := l.registry(t, Config{Wanted: Wanted{Handlers: configured("crun")}})
		if _, err := r.Get("crun"); err != nil {
			t.Fatal(err)
		}
		l.change("crun", "it fails now", "")
		found, err := r.Verify(t.Context(), "crun", nil)
		if err != nil || found.Ready || found.Reason != "it fails now" {
			t.Errorf("the trial found %+v, %v", found, err)
		}
		if _, err := r.Get("crun"); err != nil {
			t.Errorf("after one failure: %v", err)
		}
		l.change("crun", "", "")
		time.Sleep(retryFirst)
		r.List()
		synctest.Wait()
		if e := r.find("crun").last.Load(); e.failures != 0 || l.trials.Load() != 3 {
			t.Errorf("after it worked again: %+v after %d trials", e, l.trials.Load())
		}
	})
}

// A daemon that ends gives up the trials under way, so that they tidy up after
// themselves before it has gone. What such a trial says is nobody's news.
func TestTrialsAreGivenUpAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab()
		kinds := l.kinds()
		kind := kinds[KindOCI]
		begun, tidied := make(chan struct{}), false
		kind.Probe = func(ctx context.Context, _ Definition) pod.HandlerInfo {
			close(begun)
			<-ctx.Done()
			time.Sleep(leaveTime / 2)
			tidied = true
			return pod.HandlerInfo{Reason: "it was cut off"}
		}
		kinds[KindOCI] = kind
		var log strings.Builder
		r, err := New(Config{
			Wanted: Wanted{Handlers: configured("crun")}, ProbeTimeout: time.Hour, Log: slog.New(slog.NewTextHandler(&log, nil)),
		}, kinds)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		<-begun
		cancel()
		<-ended
		if !tidied {
			t.Error("Run has ended before the trial had tidied up")
		}
		if strings.Contains(log.String(), "cut off") {
			t.Errorf("the log tells of the trial: %s", log.String())
		}
		if _, err := r.Get("crun"); !errors.Is(err, errdefs.ErrUnavailable) {
			t.Errorf("afterwards: %v", err)
		}
	})
}

func TestVerifyTellsTheSteps(t *testing.T) {
	l := newLab()
	kinds := l.kinds()
	kind := kinds[KindOCI]
	probe := kind.Probe
	kind.Probe = func(ctx context.Context, d Definition) pod.HandlerInfo {
		stage.Enter(ctx, "one")
		stage.Enter(ctx, "two")
		return probe(ctx, d)
	}
	kinds[KindOCI] = kind
	r, err := New(Config{Wanted: Wanted{Handlers: configured("crun")}}, kinds)
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for range 2 {
		if i, err := r.Verify(t.Context(), "crun", func(s string) { steps = append(steps, s) }); err != nil || !i.Ready {
			t.Errorf("%+v %v", i, err)
		}
	}
	if !slices.Equal(steps, []string{"one", "two", "one", "two"}) {
		t.Errorf("steps %v", steps)
	}
	if _, err := r.Verify(t.Context(), "none", nil); err == nil {
		t.Error("a handler that does not exist was verified")
	}
}

func TestStatesOfHandlers(t *testing.T) {
	for _, tt := range []struct {
		info pod.HandlerInfo
		want pod.HandlerState
	}{
		{pod.HandlerInfo{Ready: true}, pod.HandlerReady},
		{pod.HandlerInfo{Trying: true, Reason: "x"}, pod.HandlerUnverified},
		{pod.HandlerInfo{Reason: "x"}, pod.HandlerFailed},
		{pod.HandlerInfo{Draining: true, Reason: "x"}, pod.HandlerDraining},
	} {
		if got := tt.info.State(); got != tt.want {
			t.Errorf("%+v is %s", tt.info, got)
		}
	}
}

// A refusal says since when, and whether it is worth asking again soon: a trial
// that ran out of time is, until that has happened again and again.
func TestRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab()
		kinds := l.kinds()
		kind, late := kinds[KindOCI], true
		kind.Probe = func(context.Context, Definition) pod.HandlerInfo {
			return pod.HandlerInfo{Reason: "it did not end in time", Late: late}
		}
		kinds[KindOCI] = kind
		w := Wanted{Handlers: configured("crun"), Origin: func(name string) string { return "handlers." + name + " in a file" }}
		r, err := New(Config{Wanted: w, Log: slog.New(slog.DiscardHandler)}, kinds)
		if err != nil {
			t.Fatal(err)
		}
		since := time.Now().UTC().Format(time.RFC3339)
		for i := range believed + 1 {
			want := errdefs.ErrUnavailable
			if i >= believed-1 {
				want = errdefs.ErrPrecondition
			}
			_, err := r.Get("crun")
			if !errors.Is(err, want) || !strings.Contains(err.Error(), "it did not end in time (handlers.crun in a file), since "+since) {
				t.Errorf("after %d trials: %v, want %v", i+1, err, want)
			}
			time.Sleep(retryLast)
		}
		late = false
		if _, err := r.Get(""); !errors.Is(err, errdefs.ErrPrecondition) {
			t.Errorf("the default: %v", err)
		}
	})
}
