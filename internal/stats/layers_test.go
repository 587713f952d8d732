package stats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// shelf is layers of known sizes that take a while to walk.
type shelf struct {
	takes time.Duration

	mu    sync.Mutex
	sizes map[pod.ContainerID]int64
	walks int
	err   error
}

func (s *shelf) walk(ctx context.Context, id pod.ContainerID) (int64, int64, error) {
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.walks++
	size, ok := s.sizes[id]
	if !ok {
		return 0, 0, fmt.Errorf("%s: %w", id, errdefs.ErrNotFound)
	}
	return size, 3, s.err
}

// change waits until nothing happens and then changes the shelf.
func (s *shelf) change(f func()) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func start(t *testing.T, s *shelf) *layers {
	l := newLayers(s.walk, "/disk", slog.New(slog.NewTextHandler(t.Output(), nil)))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return l
}

// pass lets time go by until nothing happens any more, so that the test may
// look at the shelf and change it.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestLayers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{takes: 10 * time.Millisecond, sizes: map[pod.ContainerID]int64{"a": 100}}
		l := start(t, s)
		if u := l.of("a"); u != nil {
			t.Errorf("before the walk: %+v", u)
		}
		pass(time.Second / 2)
		u := l.of("a")
		if u == nil || u.Bytes != 100 || u.Inodes != 3 || u.Path != "/disk" || u.At.IsZero() {
			t.Fatalf("%+v", u)
		}
		s.change(func() { s.sizes["a"] = 200 })
		pass(2 * time.Second)
		if s.walks != 1 {
			t.Errorf("%d walks for nobody", s.walks)
		}
		if u := l.of("a"); u == nil || u.Bytes != 100 {
			t.Errorf("an answer waited: %+v", u)
		}
		pass(time.Second)
		if u := l.of("a"); u == nil || u.Bytes != 200 {
			t.Errorf("after the second walk: %+v", u)
		}
		s.change(func() { delete(s.sizes, "a") })
		pass(2 * time.Second)
		l.of("a")
		pass(time.Second)
		if len(l.memory.all) != 0 {
			t.Error("what is gone is remembered")
		}
	})
}

func TestALayerThatCannotBeMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{sizes: map[pod.ContainerID]int64{"a": 1}, err: errors.New("broken disk")}
		l := start(t, s)
		for range 3 {
			if u := l.of("a"); u != nil {
				t.Errorf("%+v", u)
			}
			pass(2 * time.Second)
		}
		s.change(func() { s.err = nil })
		l.of("a")
		pass(2 * time.Second)
		if u := l.of("a"); u == nil {
			t.Error("it is not tried again")
		}
		s.change(func() { s.err = errors.New("broken disk") })
		pass(2 * time.Second)
		l.of("a")
		pass(2 * time.Second)
		if u := l.of("a"); u != nil {
			t.Errorf("the answer is of a time before the disk broke: %+v", u)
		}
	})
}

// However often somebody asks, walking takes only a part of the time.
func TestWalksRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{takes: 2 * time.Second, sizes: map[pod.ContainerID]int64{"a": 1, "b": 1}}
		l := start(t, s)
		for range 1000 {
			l.of("a")
			l.of("b")
			pass(time.Second)
		}
		if most := 2 * (1 + 1000/(restFactor*2)); s.walks > most || s.walks < most/2 {
			t.Errorf("%d walks of two seconds in 1000 seconds", s.walks)
		}
	})
}

// A sum has the last walk through each layer, and waits for those that nobody
// has asked about before.
func TestWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{takes: 10 * time.Millisecond, sizes: map[pod.ContainerID]int64{"a": 100, "b": 20}}
		m := &Meter{cfg: Config{LayerPath: "/disk"}, layers: start(t, s)}
		began := time.Now()
		u := m.Written(t.Context(), []pod.ContainerID{"a", "b", "gone"})
		if u.Bytes != 120 || u.Inodes != 6 || u.Path != "/disk" || !u.At.Equal(began) {
			t.Errorf("at first: %+v, began %s", u, began)
		}
		if u := m.Written(t.Context(), nil); u.Bytes != 0 || u.Path != "/disk" || !u.At.Equal(time.Now()) {
			t.Errorf("of nothing: %+v", u)
		}
		s.change(func() { s.sizes["a"] = 1000 })
		pass(2 * time.Second)
		if u := m.Written(t.Context(), []pod.ContainerID{"a", "b"}); u.Bytes != 120 { // and asks for new walks
			t.Errorf("what nobody has walked through yet: %+v", u)
		}
		pass(2 * time.Second)
		if u := m.Written(t.Context(), []pod.ContainerID{"a", "b"}); u.Bytes != 1020 {
			t.Errorf("after the next walk: %+v", u)
		}
		s.change(func() { s.takes = time.Hour })
		s.change(func() { s.sizes["slow"] = 5 })
		began = time.Now()
		if u := m.Written(t.Context(), []pod.ContainerID{"a", "slow"}); u.Bytes != 1000 || time.Since(began) != firstSum {
			t.Errorf("with one that takes long: %+v after %s", u, time.Since(began))
		}
	})
}
