package stats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// scale measures subjects, each of which takes a while, and says when it did.
type scale struct {
	takes time.Duration
	mu    sync.Mutex
	count map[string]int
	gone  map[string]bool
}

func (s *scale) measure(of pod.Subject) (time.Time, error) {
	at := time.Now()
	s.mu.Lock()
	takes := s.takes
	s.mu.Unlock()
	time.Sleep(takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == nil {
		s.count = map[string]int{}
	}
	s.count[keyOf(of)]++
	if s.gone[keyOf(of)] {
		return at, fmt.Errorf("%s: %w", keyOf(of), errdefs.ErrNotFound)
	}
	return at, nil
}

func (s *scale) all() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.count {
		n += c
	}
	return n
}

func subjectsOf(n int) (out []pod.Subject) {
	for i := range n {
		out = append(out, pod.Subject{Pod: &pod.Record{}, Container: &pod.Container{ID: pod.ContainerID(fmt.Sprint("c", i))}})
	}
	return out
}

func startLately(t *testing.T, s *scale) *lately[time.Time] {
	l := newLately(func(pod.Subject) {}, s.measure)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return l
}

func TestFewAreMeasuredWhenTheyAreAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scale{takes: 100 * time.Microsecond}
		l := startLately(t, s)
		for range 5 {
			before := time.Now()
			for _, m := range l.of(t.Context(), subjectsOf(10)) {
				if m.kept || m.err != nil || m.value.Before(before) {
					t.Errorf("%+v", m)
				}
			}
			time.Sleep(10 * time.Second)
		}
		if n := s.all(); n != 50 {
			t.Errorf("%d measurements for 5 lists of 10", n)
		}
	})
}

// A list of very many is quick, and what it says is never too old, for as long
// as somebody asks.
func TestManyAreMeasuredBeforeTheyAreAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scale{takes: time.Millisecond}
		l := startLately(t, s)
		all := subjectsOf(500)
		for _, m := range l.of(t.Context(), all) {
			if m.kept || m.err != nil {
				t.Fatalf("%+v", m)
			}
		}
		for range 20 {
			time.Sleep(10 * time.Second)
			before := time.Now()
			list := l.of(t.Context(), all)
			if took := time.Since(before); took > 0 {
				t.Fatalf("a list took %s", took)
			}
			for i, m := range list {
				if m.err != nil || before.Sub(m.value) > maxAge*6/10 || !m.kept || !m.at.Before(before) {
					t.Fatalf("%d is of %s ago: %+v", i, before.Sub(m.value), m)
				}
			}
		}
		if n := s.all(); n > 500*(1+200*3/10) {
			t.Errorf("%d measurements in 200 seconds", n)
		}
		// Nobody asks any more.
		time.Sleep(interest + 2*step)
		synctest.Wait()
		before := s.all()
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.all() != before || len(l.known) != 0 {
			t.Errorf("%d measurements for nobody; %d are kept", s.all()-before, len(l.known))
		}
		if m := l.of(t.Context(), all[:1]); m[0].kept {
			t.Errorf("an answer of an hour ago: %+v", m)
		}
	})
}

// A host that was slow for a while is not taken for slow for ever.
func TestManyThatBecomeQuickAreMeasuredWhenTheyAreAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scale{takes: time.Millisecond}
		l := startLately(t, s)
		all := subjectsOf(100)
		l.of(t.Context(), all)
		s.mu.Lock()
		s.takes = 10 * time.Microsecond
		s.mu.Unlock()
		for _, kept := range []bool{true, false} {
			if m := l.of(t.Context(), all); m[0].kept != kept || m[99].kept != kept {
				t.Errorf("%+v, want kept %v", m[0], kept)
			}
			time.Sleep(2 * maxAge)
		}
	})
}

// What a record says may be a part of the answer.
func TestWhatHasChangedIsMeasuredAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLately(t, &scale{takes: time.Millisecond})
		all := subjectsOf(100)
		l.of(t.Context(), all)
		changed := *all[7].Container
		all[7].Container = &changed
		for _, kept := range []bool{false, true} {
			time.Sleep(time.Second)
			if m := l.of(t.Context(), all)[7]; m.kept != kept {
				t.Errorf("%+v, want kept %v", m, kept)
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.known["c7"].subject.Container != &changed {
			t.Error("the old record is measured in the background")
		}
	})
}

func TestWhatEndsIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scale{takes: time.Millisecond}
		l := startLately(t, s)
		all := subjectsOf(100)
		l.of(t.Context(), all)
		s.mu.Lock()
		s.gone = map[string]bool{"c7": true}
		s.mu.Unlock()
		time.Sleep(maxAge)
		synctest.Wait()
		l.mu.Lock()
		_, there := l.known["c7"]
		l.mu.Unlock()
		if list := l.of(t.Context(), all); there || !errors.Is(list[7].err, errdefs.ErrNotFound) || list[8].err != nil {
			t.Errorf("known: %v, %+v", there, list[7])
		}
	})
}

func TestAListEndsWithItsCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := newLately(func(pod.Subject) {}, (&scale{}).measure)
	for _, m := range l.of(ctx, subjectsOf(3)) {
		if !errors.Is(m.err, context.Canceled) {
			t.Errorf("%+v", m)
		}
	}
	if len(l.known) != 0 {
		t.Error("what was not measured is known")
	}
}

// BenchmarkManyCgroups measures 500 containers in 250 pods, in cgroups of this
// host without any processes, as the first list and as those after it.
func BenchmarkManyCgroups(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("making cgroups needs root")
	}
	const root = "/sys/fs/cgroup"
	top := fmt.Sprintf("/fairlead-stats-%d", os.Getpid())
	var made []string
	b.Cleanup(func() {
		for i := len(made) - 1; i >= 0; i-- {
			if err := os.Remove(made[i]); err != nil {
				b.Error(err)
			}
		}
	})
	hierarchies := []string{root}
	if !exists(root + "/cgroup.controllers") {
		hierarchies, _ = filepath.Glob(root + "/*")
	}
	mkdir := func(path string) {
		for _, h := range hierarchies {
			if os.Mkdir(h+path, 0o755) == nil {
				made = append(made, h+path)
			}
		}
	}
	mkdir(top)
	var subjects []pod.Subject
	for i := range 250 {
		p := &pod.Record{ID: pod.ID(fmt.Sprint("p", i))}
		mkdir(fmt.Sprint(top, "/", p.ID))
		subjects = append(subjects, pod.Subject{Pod: p})
		for k := range 2 {
			c := &pod.Container{ID: pod.ContainerID(fmt.Sprint("c", k))}
			mkdir(fmt.Sprint(top, "/", p.ID, "/", c.ID))
			c.ID = pod.ContainerID(fmt.Sprint(p.ID, c.ID))
			subjects = append(subjects, pod.Subject{Pod: p, Container: c})
		}
	}
	m, err := New(Config{
		Cgroups:   root,
		PodCgroup: func(r *pod.Record) (string, error) { return fmt.Sprint(top, "/", r.ID), nil },
		ContainerCgroup: func(r *pod.Record, id pod.ContainerID) (string, error) {
			return fmt.Sprint(top, "/", r.ID, "/", id[len(r.ID):]), nil
		},
		Layer: func(context.Context, pod.ContainerID) (int64, int64, error) { return 0, 0, nil }, LayerPath: b.TempDir(),
		Groups: config.MetricGroups(),
	})
	if err != nil {
		b.Fatal(err)
	}
	check := func(found []pod.Measured) {
		for _, f := range found {
			if f.Err != nil {
				b.Fatal(f.Err)
			}
		}
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			m.usage = newLately(m.inside.begin, m.measure)
			check(m.UsageOf(b.Context(), subjects))
		}
	})
	b.Run("next", func(b *testing.B) {
		for b.Loop() {
			check(m.UsageOf(b.Context(), subjects))
		}
	})
}
