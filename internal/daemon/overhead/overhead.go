// Package overhead serves the measurement of what pods of runtime handlers take
// beside their workload, and remembers what was found. How a pod is run and
// looked at is the handlers' own.
package overhead

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/lifecycle"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime"
	"fairlead.run/internal/stage"
)

// limit bounds the measurement of one handler, beside its window.
const limit = 2 * time.Minute

// measurer is a handler that can say what its pods cost.
type measurer interface {
	Info() pod.HandlerInfo
	Costs(ctx context.Context, pods int, window time.Duration) (pod.HandlerCosts, error)
}

// Meter measures handlers, one at a time: two measurements would find each
// other's pods in what they measure.
type Meter struct {
	handlers *runtime.Registry[lifecycle.Handler]
	busy     sync.Mutex

	mu    sync.Mutex
	known map[string]measured
}

// New makes a Meter of handlers.
func New(handlers *runtime.Registry[lifecycle.Handler]) *Meter { return &Meter{handlers: handlers} }

type measured struct {
	adminv1.Overhead
	program string // and version, of which this is true
}

func programOf(i *pod.HandlerInfo) string { return i.Path + " " + i.Version }

// Of is what was measured last of a handler, or nil if that was never, or of
// another program.
func (m *Meter) Of(i *pod.HandlerInfo) *adminv1.Overhead {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, ok := m.known[i.Name]
	if !ok || last.program != programOf(i) {
		return nil
	}
	return &last.Overhead
}

func (m *Meter) keep(i *pod.HandlerInfo, found adminv1.Overhead) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[string]measured{}
	}
	m.known[i.Name] = measured{found, programOf(i)}
}

// Serve is the call Overhead of adminv1.Server. It ends with its client.
func (m *Meter) Serve(ctx context.Context, s adminv1.Stream) error {
	var req adminv1.OverheadRequest
	if err := adminv1.ReceiveJSON(s, &req); err != nil {
		return fmt.Errorf("measure handlers: read the request: %w (%w)", err, errdefs.ErrInvalidArgument)
	}
	window := time.Duration(req.WindowMS) * time.Millisecond
	if req.Pods < 1 || req.Pods > adminv1.MaxOverheadPods || window <= 0 || window > adminv1.MaxOverheadWindow {
		return fmt.Errorf("measure handlers: %d pods for %s; want 1 to %d, and up to %s: %w",
			req.Pods, window, adminv1.MaxOverheadPods, adminv1.MaxOverheadWindow, errdefs.ErrInvalidArgument)
	}
	list, err := m.toMeasure(req.Names)
	if err != nil {
		return err
	}
	if !m.busy.TryLock() {
		return fmt.Errorf("measure handlers: that is being done already, and two would disturb each other: %w", errdefs.ErrUnavailable)
	}
	defer m.busy.Unlock()
	var out []adminv1.Overhead
	for i := range list {
		tell := func(step string) { _ = adminv1.SendJSON(s, adminv1.OverheadEvent{Step: list[i].Name + ": " + step}) }
		found := m.measure(stage.With(ctx, tell), &list[i], req.Pods, window)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		out = append(out, found)
	}
	return adminv1.SendJSON(s, adminv1.OverheadEvent{Done: true, Handlers: out})
}

// toMeasure are the handlers of these names, or all.
func (m *Meter) toMeasure(names []string) ([]pod.HandlerInfo, error) {
	all := m.handlers.List()
	if len(names) == 0 {
		return all, nil
	}
	var out []pod.HandlerInfo
	for _, name := range names {
		at := slices.IndexFunc(all, func(i pod.HandlerInfo) bool { return i.Name == name })
		if at < 0 {
			_, err := m.handlers.Get(name) // which says what there is
			return nil, fmt.Errorf("measure handler %q: %w", name, err)
		}
		out = append(out, all[at])
	}
	return out, nil
}

// measure measures one handler. What keeps it from that is in the answer, so
// that the others are measured all the same.
func (m *Meter) measure(ctx context.Context, i *pod.HandlerInfo, pods int, window time.Duration) adminv1.Overhead {
	out := adminv1.Overhead{Name: i.Name}
	h, err := m.handlers.Get(i.Name)
	if err != nil {
		out.Reason = err.Error()
		return out
	}
	able, ok := h.(measurer)
	if !ok {
		out.Reason = "this kind of handler cannot be measured"
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, limit+window)
	defer cancel()
	found, err := able.Costs(ctx, pods, window)
	if err != nil {
		out.Reason = err.Error()
		return out
	}
	out.MeasuredAt, out.Pods, out.WindowMS = time.Now(), pods, window.Milliseconds()
	out.MemoryP50, out.CPUP50 = percentile(found.Pods, 50)
	out.MemoryP99, out.CPUP99 = percentile(found.Pods, 99)
	out.MonitorMemory, out.MonitorCPU = found.Monitor.Memory, found.Monitor.CPU
	now := able.Info() // what was listed may be from before the first trial
	now.Name = i.Name
	m.keep(&now, out)
	return out
}

// percentile is the least cost that p of a hundred pods do not go beyond. Of
// fewer than a hundred pods, the 99th is the largest.
func percentile(pods []pod.Cost, p float64) (memory int64, cpu float64) {
	if len(pods) == 0 {
		return 0, 0
	}
	at := max(int(math.Ceil(p/100*float64(len(pods))))-1, 0)
	var m []int64
	var c []float64
	for _, cost := range pods {
		m, c = append(m, cost.Memory), append(c, cost.CPU)
	}
	slices.Sort(m)
	slices.Sort(c)
	return m[at], c[at]
}
