// Package changes tells which pods something has happened to in a runtime, so that
// nobody has to ask about those to which nothing has.
//
// It goes by the runtime's events. As these may be lost, and some runtimes have
// none, it also compares lists of everything: once a second without events, and
// with them when the stream begins or has a gap, and then seldom. It says that a pod
// changed, not how: whoever wants to know looks at it.
//
// The CRI does not number events. That some are missing shows in their order: nothing
// starts, ends or goes that was not made before, and none tells of what is long past. A
// stream that ends is one with a gap; Fairlead's ends for who cannot keep up with it. One
// that goes on and does not tell what a list has is given up for a new one, and everything is
// listed as without events, ever more rarely while nothing changes, until one comes.
package changes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
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
	// lag is how old an event may be when it comes. One that a list was before is not
	// missing sooner.
	lag = 5 * time.Second
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
	// Listed is told of each list, whether it came or not: when it was asked for, and when the one
	// before was, which is zero for the first. It is set before Run; nil tells nobody.
	Listed func(at, before time.Time)

	mu      sync.Mutex
	known   map[string]pod       // by UID
	newest  map[string]time.Time // of the events that were learned of these
	listed  time.Time            // when the last list was asked for
	touched map[string]bool      // pods of which events have come since
	doubted map[string]bool      // pods that it had changes of, and no event has come of since

	untold time.Time     // when a list had what no event told, and no event has come since; else zero
	gap    chan struct{} // the events have one
}

// errSilent is why a stream is given up.
var errSilent = errors.New("its stream of events does not tell what its lists have")

// pod is the state of each sandbox and container of a pod, by id.
type pod map[string]int32

// New makes a Watcher. It calls changed with the UID of a pod, from one goroutine
// at a time, and expects it back soon.
func New(runtime Runtime, log *slog.Logger, changed func(uid string)) *Watcher {
	return &Watcher{
		runtime: runtime, log: log, changed: changed, gap: make(chan struct{}, 1),
		known: map[string]pod{}, newest: map[string]time.Time{}, touched: map[string]bool{}, doubted: map[string]bool{},
	}
}

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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := w.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return fmt.Errorf("follow the events of the runtime: %w", err)
	}
	var audit sync.WaitGroup
	defer audit.Wait()
	defer cancel(nil)
	audit.Go(func() { cancel(w.audit(ctx, stream)) })
	for {
		event, err := stream.Recv()
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return fmt.Errorf("follow the events of the runtime: %w", err)
		}
		w.take(event)
	}
}

// audit lists everything when the stream has begun, for what happened before it
// did, and then now and then. Not all runtimes tell when it has. It ends with ctx, or when
// the stream is to be given up.
func (w *Watcher) audit(ctx context.Context, stream grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse]) error {
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
		case w.isSilent():
			wait = w.wary(n > 0)
		case n > 0 && !first && w.doubt(ctx):
			return errSilent
		}
		w.pause(ctx, wait)
	}
	return ctx.Err()
}

func (w *Watcher) isSilent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.untold.IsZero()
}

// wary is how long to wait for the next list while events are not trusted: the longer the
// less there was that they could have told, so that a node to which nothing happens does
// not ask for ever.
func (w *Watcher) wary(differs bool) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if differs {
		w.untold = time.Now()
	}
	return min(max(time.Since(w.untold)/4, listEvery), auditEvery)
}

// doubt says whether a list has found what nobody has told: an event may have been on its
// way.
func (w *Watcher) doubt(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(lag):
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.doubted)
	if n > 0 {
		w.untold = time.Now()
		w.log.Warn("the runtime told nothing of changes that a list has", "pods", n)
	}
	return n > 0
}

// pause waits for the next list. Because of gaps there are no more of these than without
// events.
func (w *Watcher) pause(ctx context.Context, until time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(until):
	case <-w.gap:
		w.log.Info("the events of the runtime have a gap, and everything is listed")
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(w.lastList().Add(listEvery))):
		}
	}
}

func (w *Watcher) lastList() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listed
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
	delete(w.doubted, uid)
	at := time.Unix(0, e.GetCreatedAt())
	if time.Since(at) <= lag {
		w.untold = time.Time{}
	}
	if at.After(w.listed) && e.GetPodSandboxStatus() != nil {
		if w.skips(uid, e) || time.Since(at) > lag {
			select {
			case w.gap <- struct{}{}:
			default:
			}
		}
		if !at.Before(w.newest[uid]) { // else it was overtaken
			w.newest[uid] = at
			w.learn(uid, e)
		}
	}
	w.changed(uid)
}

// skips says that something is missing before an event: it is about what nobody has said
// to be there. The caller holds mu.
func (w *Watcher) skips(uid string, e *runtimeapi.ContainerEventResponse) bool {
	_, known := w.known[uid][e.GetContainerId()]
	return !known && e.GetContainerEventType() != runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
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
		delete(w.newest, uid)
	}
}

// list compares everything with what is known, and says how many pods differ.
func (w *Watcher) list(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	w.mu.Lock()
	before := w.listed
	w.listed, w.touched = time.Now(), map[string]bool{}
	at := w.listed
	w.mu.Unlock()
	now, err := w.everything(ctx)
	if w.Listed != nil {
		w.Listed(at, before)
	}
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
	maps.DeleteFunc(w.newest, func(uid string, _ time.Time) bool { return now[uid] == nil })
	slices.Sort(differ)
	w.doubted = map[string]bool{}
	for _, uid := range differ {
		w.doubted[uid] = true
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
