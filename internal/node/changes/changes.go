// Package changes tells which pods something has happened to in a runtime, so that
// nobody has to ask about those to which nothing has.
//
// It goes by the runtime's events. As these may be lost, and some runtimes have
// none, it also compares lists of everything: once a second without events, and
// with them when the stream begins and then seldom. It says that a pod changed, not
// how: whoever wants to know looks at it.
package changes

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// How often everything is listed, and how long a stream that broke is not opened
// again, at first and at most.
const (
	listEvery   = time.Second
	auditEvery  = time.Minute
	headerTime  = time.Second
	firstPause  = time.Second
	longest     = 30 * time.Second
	callTimeout = 2 * time.Minute
)

// Runtime is what is asked: a part of runtimeapi.RuntimeServiceClient.
type Runtime interface {
	GetContainerEvents(context.Context, *runtimeapi.GetEventsRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], error)
	ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest, ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error)
	ListContainers(context.Context, *runtimeapi.ListContainersRequest, ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error)
}

// Watcher watches one runtime.
type Watcher struct {
	runtime Runtime
	log     *slog.Logger
	changed func(uid string)

	mu      sync.Mutex
	known   map[string]pod  // by UID
	listed  time.Time       // when the last list was asked for
	touched map[string]bool // pods of which events have come since

	missed atomic.Int64
}

// pod is the state of each sandbox and container of a pod, by id.
type pod map[string]int32

// New makes a Watcher. It calls changed with the UID of a pod, from one goroutine
// at a time, and expects it back soon.
func New(runtime Runtime, log *slog.Logger, changed func(uid string)) *Watcher {
	return &Watcher{runtime: runtime, log: log, changed: changed, known: map[string]pod{}, touched: map[string]bool{}}
}

// Missed is how many changes a list has found that no event told of, though there
// were events.
func (w *Watcher) Missed() int64 { return w.missed.Load() }

// Run watches until ctx ends. What fails is tried again.
func (w *Watcher) Run(ctx context.Context) {
	pause, told := firstPause, ""
	for ctx.Err() == nil {
		began := time.Now()
		err := w.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > longest {
			pause = firstPause
		}
		if text := err.Error(); text != told {
			told = text
			w.log.Warn("no events of the runtime, so that it is asked for lists", "error", err, "again", pause.String())
		}
		w.poll(ctx, pause)
		pause = min(2*pause, longest)
	}
}

// poll lists everything, again and again for some time.
func (w *Watcher) poll(ctx context.Context, until time.Duration) {
	end := time.After(until)
	for {
		if _, err := w.list(ctx); err != nil && ctx.Err() == nil {
			w.log.Debug("the runtime gives no list", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-end:
			return
		case <-time.After(listEvery):
		}
	}
}

// follow goes by events until there are no more.
func (w *Watcher) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := w.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return fmt.Errorf("follow the events of the runtime: %w", err)
	}
	var audit sync.WaitGroup
	defer audit.Wait()
	defer cancel()
	audit.Go(func() { w.audit(ctx, stream) })
	for {
		event, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("follow the events of the runtime: %w", err)
		}
		w.take(event)
	}
}

// audit lists everything when the stream has begun, for what happened before it
// did, and then now and then. Not all runtimes tell when it has.
func (w *Watcher) audit(ctx context.Context, stream grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse]) {
	var header sync.WaitGroup
	defer header.Wait()
	begun := make(chan struct{})
	header.Go(func() {
		_, _ = stream.Header()
		close(begun)
	})
	select {
	case <-begun:
	case <-time.After(headerTime):
	}
	for first := true; ctx.Err() == nil; first = false {
		n, err := w.list(ctx)
		wait := auditEvery
		switch {
		case err != nil && ctx.Err() == nil:
			w.log.Warn("the runtime gives no list", "error", err)
			wait = listEvery
		case n > 0 && !first:
			w.missed.Add(int64(n))
			w.log.Warn("the runtime told nothing of changes that a list has", "pods", n)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// take is one event.
func (w *Watcher) take(e *runtimeapi.ContainerEventResponse) {
	uid := e.GetPodSandboxStatus().GetMetadata().GetUid()
	w.mu.Lock()
	defer w.mu.Unlock()
	if uid == "" {
		uid = w.owner(e.GetContainerId())
	}
	if uid == "" {
		return // of a pod that no list has had yet; the event that it began comes
	}
	if at := time.Unix(0, e.GetCreatedAt()); at.After(w.listed) && e.GetPodSandboxStatus() != nil {
		w.learn(uid, e)
	}
	w.changed(uid)
}

// owner finds whose a container is. The caller holds mu.
func (w *Watcher) owner(id string) string {
	for uid, p := range w.known {
		if _, ok := p[id]; ok {
			return uid
		}
	}
	return ""
}

// learn takes over what an event says of a pod, so that the next list has nothing
// new. The caller holds mu.
func (w *Watcher) learn(uid string, e *runtimeapi.ContainerEventResponse) {
	now := maps.Clone(w.known[uid])
	if now == nil {
		now = pod{}
	}
	now[e.GetPodSandboxStatus().GetId()] = int32(e.GetPodSandboxStatus().GetState())
	for _, c := range e.GetContainersStatuses() {
		now[c.GetId()] = int32(c.GetState())
	}
	if e.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
		delete(now, e.GetContainerId())
	}
	w.touched[uid] = true
	w.known[uid] = now
	if len(now) == 0 {
		delete(w.known, uid)
	}
}

// list compares everything with what is known, and says how many pods differ.
func (w *Watcher) list(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	w.mu.Lock()
	w.listed, w.touched = time.Now(), map[string]bool{}
	w.mu.Unlock()
	now, err := w.everything(ctx)
	if err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// What events have told meanwhile may be newer than the list.
	for uid := range w.touched {
		delete(now, uid)
		if p := w.known[uid]; p != nil {
			now[uid] = p
		}
	}
	var differ []string
	for uid, p := range now {
		if !maps.Equal(p, w.known[uid]) {
			differ = append(differ, uid)
		}
	}
	for uid := range w.known {
		if now[uid] == nil {
			differ = append(differ, uid)
		}
	}
	w.known = now
	slices.Sort(differ)
	for _, uid := range differ {
		w.changed(uid)
	}
	return len(differ), nil
}

// everything is what a runtime has: two calls, however many pods there are.
func (w *Watcher) everything(ctx context.Context) (map[string]pod, error) {
	sandboxes, err := w.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	containers, err := w.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	out, owners := map[string]pod{}, map[string]string{}
	for _, s := range sandboxes.GetItems() {
		uid := s.GetMetadata().GetUid()
		owners[s.GetId()] = uid
		if out[uid] == nil {
			out[uid] = pod{}
		}
		out[uid][s.GetId()] = int32(s.GetState())
	}
	for _, c := range containers.GetContainers() {
		if uid, ok := owners[c.GetPodSandboxId()]; ok {
			out[uid][c.GetId()] = int32(c.GetState())
		}
	}
	return out, nil
}
