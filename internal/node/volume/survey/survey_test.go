package survey

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/node/volume"
)

// bench is volumes of pods, of which tests say what becomes of measuring them.
type bench struct {
	pods  map[types.UID][]volume.Part
	mu    sync.Mutex
	times map[string]int // how often each was measured
}

func newBench() *bench { return &bench{pods: map[types.UID][]volume.Part{}, times: map[string]int{}} }

// count counts a measurement.
func (b *bench) count(name string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.times[name]++
	return int64(b.times[name])
}

// add adds one whose measurement is what measure does.
func (b *bench) add(pod types.UID, u volume.Usage, measure func(context.Context) error) {
	b.pods[pod] = append(b.pods[pod], volume.Part{Usage: u, Measure: func(ctx context.Context) (volume.Usage, error) {
		n := b.count(u.Volume)
		if err := measure(ctx); err != nil {
			return volume.Usage{}, err
		}
		u := u
		u.Bytes, u.At = n, time.Now()
		return u, nil
	}})
}

func takes(d time.Duration) func(context.Context) error {
	return func(context.Context) error { time.Sleep(d); return nil }
}

func hangs(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// run tests a survey until there is nothing to do for it any more.
func (b *bench) run(t *testing.T, test func(*testing.T, *Survey)) {
	synctest.Test(t, func(t *testing.T) {
		s := New(func() map[types.UID][]volume.Part { return b.pods })
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() { over <- s.Run(ctx) }()
		test(t, s)
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}

// said is "volume=bytes" of all volumes of a pod.
func said(p Pod) string {
	var out []string
	for _, u := range p.Volumes {
		out = append(out, fmt.Sprintf("%s=%d", u.Volume, u.Bytes))
	}
	return strings.Join(out, " ")
}

// TestRest measures once a minute, however often it is asked, and whoever asks.
func TestRest(t *testing.T) {
	b := newBench()
	b.add("p", volume.Usage{Volume: "v", Local: true}, takes(0))
	b.add("p", volume.Usage{Volume: "slow", Local: true}, takes(time.Second))
	b.add("q", volume.Usage{Volume: "data", Claim: "c"}, takes(0))
	local := Ask{Age: 10 * time.Second, Only: func(_ types.UID, u volume.Usage) bool { return u.Local }}
	b.run(t, func(t *testing.T, s *Survey) {
		for i, tt := range []struct {
			after time.Duration
			ask   Ask
			want  [2]string // of p and q
		}{
			{0, Ask{}, [2]string{"v=1 slow=1", "data=1"}},
			{30 * time.Second, Ask{}, [2]string{"v=1 slow=1", "data=1"}},
			{0, local, [2]string{"v=2 slow=2", ""}},               // it wants to know better
			{8 * time.Second, local, [2]string{"v=2 slow=2", ""}}, // and that is good enough
			{3 * time.Second, local, [2]string{"v=3 slow=2", ""}}, // a walk of a second needs 20 to rest
			{20 * time.Second, Ask{}, [2]string{"v=3 slow=2", "data=2"}},
			{time.Minute, Ask{}, [2]string{"v=4 slow=3", "data=3"}},
		} {
			time.Sleep(tt.after)
			got := s.Usage(t.Context(), tt.ask)
			if said(got["p"]) != tt.want[0] || said(got["q"]) != tt.want[1] || got["p"].Err != nil {
				t.Errorf("%d: p %q %v, q %q; want %q", i, said(got["p"]), got["p"].Err, said(got["q"]), tt.want)
			}
		}
	})
}

// TestHung has volumes that hang delay one answer, and no other volume, whichever hang: none
// of them is measured twice.
func TestHung(t *testing.T) {
	b := newBench()
	for i := range 3 * parallel {
		b.add("dead", volume.Usage{Volume: fmt.Sprint("nfs", i)}, hangs)
	}
	for i := range 3 {
		b.add("alive", volume.Usage{Volume: fmt.Sprint("v", i)}, takes(0))
	}
	b.run(t, func(t *testing.T, s *Survey) {
		began := time.Now()
		s.Usage(t.Context(), Ask{})
		if took := time.Since(began); took != Patience {
			t.Errorf("the first answer took %s, want %s", took, Patience)
		}
		time.Sleep(3 * Patience) // until all have had their turn
		for range 5 {
			began := time.Now()
			got := s.Usage(t.Context(), Ask{})
			if took := time.Since(began); took != 0 {
				t.Errorf("an answer took %s", took)
			}
			if len(got["alive"].Volumes) != 3 || got["alive"].Err != nil || len(got["dead"].Volumes) != 0 || !strings.Contains(got["dead"].Err.Error(), "measure volume nfs7: it takes longer than") {
				t.Errorf("alive %+v, dead %+v", got["alive"], got["dead"])
			}
			time.Sleep(20 * time.Second)
		}
		for name, n := range b.times {
			if strings.HasPrefix(name, "nfs") && n != 1 {
				t.Errorf("%s was measured %d times", name, n)
			}
		}
	})
}

// TestBefore tells of a volume as it was before it hung, and nothing of one that fails.
func TestBefore(t *testing.T) {
	b := newBench()
	var becomes func(context.Context) error
	b.add("p", volume.Usage{Volume: "v"}, func(ctx context.Context) error { return becomes(ctx) })
	b.add("p", volume.Usage{Volume: "w"}, takes(0))
	b.run(t, func(t *testing.T, s *Survey) {
		broken := errors.New("input/output error")
		for i, tt := range []struct {
			becomes func(context.Context) error
			want    string
			err     string
		}{
			{takes(0), "v=1 w=1", ""},
			{func(context.Context) error { return broken }, "w=2", "input/output error"},
			{takes(0), "v=3 w=3", ""},
			{hangs, "v=3 w=4", "longer than 2s"},
		} {
			becomes = tt.becomes
			p := s.Usage(t.Context(), Ask{})["p"]
			if said(p) != tt.want || (p.Err == nil) != (tt.err == "") || p.Err != nil && !strings.Contains(p.Err.Error(), tt.err) {
				t.Errorf("%d: %q, %v; want %q, %s", i, said(p), p.Err, tt.want, tt.err)
			}
			time.Sleep(Rest)
		}
	})
}

// TestGone ends what is measured of a pod that has gone, and forgets it.
func TestGone(t *testing.T) {
	b := newBench()
	b.add("p", volume.Usage{Volume: "v"}, hangs)
	b.add("q", volume.Usage{Volume: "w"}, takes(0))
	b.run(t, func(t *testing.T, s *Survey) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if s.Usage(ctx, Ask{}); time.Since(began) != time.Second {
			t.Errorf("who does not want to wait any more waited for %s", time.Since(began))
		}
		delete(b.pods, "p")
		if got := s.Usage(t.Context(), Ask{}); len(got) != 1 || said(got["q"]) != "w=1" {
			t.Errorf("%+v", got)
		}
		synctest.Wait()
		if len(s.known) != 1 {
			t.Errorf("%+v", s.known)
		}
		b.add("p", volume.Usage{Volume: "v"}, takes(0))
		if got := s.Usage(t.Context(), Ask{}); said(got["p"]) != "v=2" {
			t.Errorf("%+v: it came back", got)
		}
	})
	s := New(func() map[types.UID][]volume.Part { return b.pods })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ended); err != nil {
		t.Fatal(err)
	}
	before := b.times["w"]
	if got := s.Usage(t.Context(), Ask{}); b.times["w"] != before || slices.ContainsFunc([]Pod{got["p"], got["q"]}, func(p Pod) bool { return len(p.Volumes) > 0 }) {
		t.Errorf("%+v was measured after the end", got)
	}
}
