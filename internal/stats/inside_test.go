package stats

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.run/internal/pod"
)

// sandboxed is a meter whose pods have kernels of their own that answer so, and
// the first container of pod "p".
func sandboxed(t *testing.T, ask func(context.Context, *pod.Record) (map[pod.ContainerID]pod.InsideUsage, error)) (*Meter, *pod.Record) {
	t.Helper()
	m, _ := host(t, version2)
	m.inside.ask = ask
	return m, &pod.Record{ID: "p", Sandbox: pod.Sandbox{OwnKernel: true}, Containers: []*pod.Container{{ID: "a"}}}
}

func subject(r *pod.Record) []pod.Subject {
	return []pod.Subject{{Pod: r, Container: r.Containers[0]}}
}

func TestUsageInsideASandbox(t *testing.T) {
	for name, tt := range map[string]struct {
		says pod.InsideUsage
		err  error
		want pod.ContainerUsage
	}{
		"all": {
			says: pod.InsideUsage{CPU: p(7), User: p(4), System: p(3), Memory: p(8), Threads: p(9)},
			want: pod.ContainerUsage{CPU: &pod.CPUUsage{Total: p(7)}, Memory: &pod.MemoryUsage{Total: p(8), WorkingSet: p(8)}},
		},
		"no memory": {says: pod.InsideUsage{CPU: p(7)}, want: pod.ContainerUsage{CPU: &pod.CPUUsage{Total: p(7)}}},
		"an error":  {err: errors.New("garbage")},
	} {
		t.Run(name, func(t *testing.T) {
			m, r := sandboxed(t, func(context.Context, *pod.Record) (map[pod.ContainerID]pod.InsideUsage, error) {
				return map[pod.ContainerID]pod.InsideUsage{"a": tt.says}, tt.err
			})
			got := m.UsageOf(t.Context(), subject(r))[0]
			if got.Err != nil {
				t.Fatal(got.Err)
			}
			if d := cmp.Diff(tt.want, got.Container, noTimes); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestMetricsInsideASandbox(t *testing.T) {
	m, r := sandboxed(t, func(context.Context, *pod.Record) (map[pod.ContainerID]pod.InsideUsage, error) {
		return map[pod.ContainerID]pod.InsideUsage{"a": {CPU: p(7e9), User: p(4e9), Memory: p(8), Threads: p(9)}}, nil
	})
	got := m.MetricsOf(t.Context(), subject(r))[0]
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	values := map[*pod.MetricFamily]uint64{}
	for _, v := range got.Values {
		values[v.Family] = v.Value
	}
	for f, want := range map[*pod.MetricFamily]uint64{cpuUsage: 7, cpuUser: 4, memoryUsage: 8, memoryWorking: 8, threads: 9} {
		if v, ok := values[f]; !ok || v != want {
			t.Errorf("%s is %d, %v; want %d", f.Name, v, ok, want)
		}
	}
	// What only the host's cgroup has is that of the stand-in.
	for _, f := range []*pod.MetricFamily{cpuSystem, memoryRSS, memoryCache, processes, oomEvents, cpuWaiting, fsReads} {
		if v, ok := values[f]; ok {
			t.Errorf("%s is %d, and the sandbox did not tell it", f.Name, v)
		}
	}
}

// A sandbox that hangs is waited for once, with all others at the same time, and
// is asked again when the question was given up.
func TestSandboxesThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var questions atomic.Int32
		var answers atomic.Bool
		ask := func(ctx context.Context, r *pod.Record) (map[pod.ContainerID]pod.InsideUsage, error) {
			if r.ID == "p" && !answers.Load() {
				questions.Add(1)
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return map[pod.ContainerID]pod.InsideUsage{"a": {CPU: p(7)}}, nil
		}
		m, r := sandboxed(t, ask)
		good := *r
		good.ID = "q"
		list := append(subject(r), subject(&good)...)
		began := time.Now()
		check := func(want time.Duration, told bool) {
			t.Helper()
			got := m.UsageOf(t.Context(), list)
			if took := time.Since(began); took != want {
				t.Errorf("the list took until %v, want %v", took, want)
			}
			if (got[0].Container.CPU != nil) != told || got[0].Err != nil {
				t.Errorf("the one that hangs: %+v", got[0])
			}
			if got[1].Container.CPU == nil {
				t.Errorf("the other: %+v", got[1])
			}
		}
		check(patience, false)
		check(patience, false) // nobody waits again
		time.Sleep(answerLimit)
		check(answerLimit+patience+doubt, false)
		if n := questions.Load(); n != 2 {
			t.Errorf("it was asked %d times", n)
		}
		answers.Store(true)
		time.Sleep(answerLimit)
		check(2*answerLimit+patience+doubt, true)
	})
}

// What was said before is the answer of one that takes its time, as long as it is
// no older than that of any list.
func TestSandboxThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var again atomic.Bool
		m, r := sandboxed(t, func(ctx context.Context, _ *pod.Record) (map[pod.ContainerID]pod.InsideUsage, error) {
			if again.Swap(true) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return map[pod.ContainerID]pod.InsideUsage{"a": {At: time.Now(), CPU: p(7)}}, nil
		})
		at := time.Now()
		for range 3 {
			got, err := m.Container(r, r.Containers[0])
			if err != nil || got.CPU == nil || !got.CPU.At.Equal(at) {
				t.Fatalf("%+v %v", got.CPU, err)
			}
			time.Sleep(2 * time.Second)
		}
		time.Sleep(maxAge)
		if got, err := m.Container(r, r.Containers[0]); err != nil || got.CPU != nil {
			t.Errorf("%+v %v", got.CPU, err)
		}
		time.Sleep(answerLimit)
	})
}

func TestQuestionsEndWithRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := sandboxed(t, func(ctx context.Context, _ *pod.Record) (map[pod.ContainerID]pod.InsideUsage, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		m.inside.begin(subject(r)[0])
		synctest.Wait()
		done := make(chan struct{})
		go func() { m.inside.run(ctx); close(done) }()
		began := time.Now()
		cancel()
		<-done
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
		if got := m.inside.of(r, "a"); got.CPU != nil {
			t.Errorf("%+v", got)
		}
	})
}
