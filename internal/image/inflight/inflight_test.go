package inflight_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image/inflight"
	"fairlead.run/internal/image/progress"
)

type set = inflight.Set[string]

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// work is a task that waits to be released, or to be ended.
type work struct {
	runs    chan *progress.Tracker // one for each run
	release chan struct{}
}

func newWork() *work { return &work{make(chan *progress.Tracker, 10), make(chan struct{})} }

func (w *work) run(ctx context.Context, t *progress.Tracker) (string, error) {
	w.runs <- t
	select {
	case <-w.release:
		return "done", nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

type result struct {
	text string
	err  error
}

func begin(ctx context.Context, s *set, t inflight.Task, w *work) <-chan result {
	out := make(chan result, 1)
	go func() {
		text, err := s.Do(ctx, t, w.run)
		out <- result{text, err}
	}()
	return out
}

func task(stay bool) inflight.Task {
	return inflight.Task{Key: "k", Verb: "pull", Name: "app:1", Stay: stay}
}

func TestSameTasksJoin(t *testing.T) {
	var s set
	w := newWork()
	var all []<-chan result
	for range 3 {
		all = append(all, begin(t.Context(), &s, task(false), w))
	}
	eventually(t, "three who wait", func() bool {
		l := s.List()
		return len(l) == 1 && l[0].Waiting == 3
	})
	other := inflight.Task{Key: "other", Verb: "pull", Name: "app:2"}
	all = append(all, begin(t.Context(), &s, other, w))
	eventually(t, "two operations", func() bool { return len(s.List()) == 2 })
	close(w.release)
	for _, c := range all {
		if r := <-c; r.err != nil || r.text != "done" {
			t.Error(r)
		}
	}
	if n := len(w.runs); n != 2 {
		t.Errorf("%d runs of two tasks", n)
	}
	eventually(t, "the end of the list", func() bool { return len(s.List()) == 0 })
}

// Each caller is told once of all phases, also one who joined and one who gave up.
func TestCallersLearnThePhases(t *testing.T) {
	var s set
	w := newWork()
	told := make(chan []progress.Passage, 10)
	tell := task(true)
	tell.Passed = func(all []progress.Passage) { told <- all }
	ctx, cancel := context.WithCancel(t.Context())
	first := begin(ctx, &s, tell, w)
	track := <-w.runs
	second := begin(t.Context(), &s, tell, w)
	eventually(t, "two who wait", func() bool { return s.List()[0].Waiting == 2 })
	cancel()
	if r := <-first; r.err == nil {
		t.Error("who gave up has a result")
	}
	if all := <-told; len(all) != 1 || all[0].Phase != progress.Resolving {
		t.Errorf("who gave up is told %v", all)
	}
	track.Enter(progress.Recording)
	close(w.release)
	<-second
	if all := <-told; len(all) != 2 || all[1].Phase != progress.Recording {
		t.Errorf("who joined is told %v", all)
	}
	if len(told) > 0 {
		t.Error("somebody was told twice")
	}
}

// What nobody waits for ends, unless somebody may come back for it.
func TestGivingUp(t *testing.T) {
	for _, stay := range []bool{false, true} {
		var s set
		w := newWork()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		first := begin(ctx, &s, task(stay), w)
		<-w.runs
		r := <-first
		cancel()
		if !errors.Is(r.err, errdefs.ErrDeadline) || !strings.Contains(r.err.Error(), `pull image app:1: still at stage "resolving" after`) {
			t.Errorf("stay %t: the error names no stage or age: %v", stay, r.err)
		}
		if !stay {
			eventually(t, "the end of what nobody waits for", func() bool { return len(s.List()) == 0 })
			continue
		}
		if l := s.List(); len(l) != 1 || l[0].Waiting != 0 {
			t.Fatalf("it does not go on: %+v", l)
		}
		second := begin(t.Context(), &s, task(false), w)
		eventually(t, "the one who came back", func() bool { return s.List()[0].Waiting == 1 })
		close(w.release)
		if r := <-second; r.err != nil || len(w.runs) != 0 {
			t.Errorf("who came back got %v, after %d more runs", r, len(w.runs))
		}
	}
}

// One who wants it to stay is enough, whoever began.
func TestStayCounts(t *testing.T) {
	var s set
	w := newWork()
	first := begin(t.Context(), &s, task(false), w)
	<-w.runs
	ctx, cancel := context.WithCancel(t.Context())
	second := begin(ctx, &s, task(true), w)
	eventually(t, "two who wait", func() bool { return s.List()[0].Waiting == 2 })
	cancel()
	if r := <-second; !errors.Is(r.err, context.Canceled) {
		t.Error(r)
	}
	close(w.release)
	if r := <-first; r.err != nil {
		t.Error(r)
	}
}

func TestListTellsHowFar(t *testing.T) {
	var s set
	w := newWork()
	done := begin(t.Context(), &s, task(false), w)
	track := <-w.runs
	a, b := digest.FromString("a"), digest.FromString("b")
	track.Expect([]ocispec.Descriptor{{Digest: a, Size: 2e6}, {Digest: b, Size: 8e6}})
	track.Set(a, progress.Done, 2e6)
	track.Set(b, progress.Downloading, 3e6)
	if l := s.List(); len(l) != 1 || l[0].Stage != "downloading, 1 of 2 layers done, 5.0 of 10.0 MB" || l[0].Verb != "pull" || l[0].Name != "app:1" {
		t.Errorf("%+v", l)
	}
	track.Set(b, progress.Unpacking, 4e6)
	if l := s.List(); l[0].Stage != "unpacking, 1 of 2 layers done, 6.0 of 10.0 MB" {
		t.Errorf("%+v", l)
	}
	close(w.release)
	<-done
}

func TestFollow(t *testing.T) {
	var s set
	done := s.Follow("remove", "app:1", func() progress.State { return progress.State{Phase: progress.Freeing} })
	if l := s.List(); len(l) != 1 || l[0].Verb != "remove" || l[0].Stage != "freeing layers" || l[0].Waiting != 1 {
		t.Errorf("%+v", l)
	}
	if err := s.Close(time.Minute); err != nil { // it is its caller's to end
		t.Error(err)
	}
	done()
	if l := s.List(); len(l) != 0 {
		t.Errorf("%+v", l)
	}
}

func TestClose(t *testing.T) {
	var s set
	w := newWork()
	done := begin(t.Context(), &s, task(true), w)
	<-w.runs
	if err := s.Close(time.Minute); err != nil {
		t.Error(err)
	}
	if r := <-done; !errors.Is(r.err, context.Canceled) {
		t.Error(r)
	}
	if _, err := s.Do(t.Context(), task(false), w.run); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Error(err)
	}
}

// What hangs is named, and not waited for.
func TestCloseIsBounded(t *testing.T) {
	var s set
	hang := make(chan struct{})
	defer close(hang)
	begun := make(chan struct{})
	go func() {
		_, _ = s.Do(context.Background(), task(true), func(context.Context, *progress.Tracker) (string, error) {
			close(begun)
			<-hang
			return "", nil
		})
	}()
	<-begun
	if err := s.Close(time.Millisecond); !errors.Is(err, errdefs.ErrDeadline) || !strings.Contains(err.Error(), `pull app:1 does not end: it is at stage "resolving"`) {
		t.Error(err)
	}
}
