package changes

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/inprocess"
)

// fake is a runtime whose pods have one sandbox and one container each.
type fake struct {
	runtimeapi.UnimplementedRuntimeServiceServer

	mu      sync.Mutex
	pods    map[string]runtimeapi.ContainerState // by UID, of the container
	lists   int
	follows int
	events  chan *runtimeapi.ContainerEventResponse // nil for a runtime without
	silent  bool                                    // no header is sent
	listing func()                                  // called before a list is answered
}

func (f *fake) set(uid string, s runtimeapi.ContainerState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods[uid] = s
}

// asked is how often there was a list, and how often events were asked for.
func (f *fake) asked() (lists, follows int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists, f.follows
}

func (f *fake) event(uid string, s runtimeapi.ContainerState) *runtimeapi.ContainerEventResponse {
	return &runtimeapi.ContainerEventResponse{
		ContainerId: "c-" + uid, CreatedAt: time.Now().UnixNano(), ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
		PodSandboxStatus:   &runtimeapi.PodSandboxStatus{Id: "s-" + uid, Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}},
		ContainersStatuses: []*runtimeapi.ContainerStatus{{Id: "c-" + uid, State: s}},
	}
}

func (f *fake) GetContainerEvents(_ *runtimeapi.GetEventsRequest, out grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	f.mu.Lock()
	f.follows++
	events := f.events
	f.mu.Unlock()
	if events == nil {
		return status.Error(codes.Unimplemented, "none here")
	}
	if !f.silent {
		if err := out.SendHeader(metadata.MD{}); err != nil {
			return err
		}
	}
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return status.Error(codes.Unavailable, "the runtime ends")
			}
			if err := out.Send(e); err != nil {
				return err
			}
		case <-out.Context().Done():
			return out.Context().Err()
		}
	}
}

func (f *fake) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	out := &runtimeapi.ListPodSandboxResponse{}
	for uid := range f.pods {
		out.Items = append(out.Items, &runtimeapi.PodSandbox{Id: "s-" + uid, Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}})
	}
	return out, nil
}

func (f *fake) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	f.mu.Lock()
	out := &runtimeapi.ListContainersResponse{}
	for uid, s := range f.pods {
		out.Containers = append(out.Containers, &runtimeapi.Container{Id: "c-" + uid, PodSandboxId: "s-" + uid, State: s})
	}
	listing := f.listing
	f.mu.Unlock()
	if listing != nil {
		listing()
	}
	return out, nil
}

const (
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
)

// heard is what a Watcher says.
type heard struct {
	slog.Handler
	missed atomic.Int64
}

// Missed is how many pods had changes of which the log says that nobody has told.
func (h *heard) Missed() int64 { return h.missed.Load() }

// Enabled implements slog.Handler.
func (h *heard) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (h *heard) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "pods" {
			h.missed.Add(a.Value.Int64())
		}
		return true
	})
	return nil
}

// watched runs a Watcher in a bubble, and gives what it has told since the last
// question. Channels are made in the bubble.
func watched(t *testing.T, f *fake, events bool, test func(said *heard, told func() []string)) {
	synctest.Test(t, func(t *testing.T) {
		if events {
			f.events = make(chan *runtimeapi.ContainerEventResponse)
		}
		conn := inprocess.New(inprocess.Options{})
		runtimeapi.RegisterRuntimeServiceServer(conn, f)
		var mu sync.Mutex
		var all []string
		said := &heard{Handler: slog.DiscardHandler}
		w := New(runtimeapi.NewRuntimeServiceClient(conn), slog.New(said), func(uid string) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, uid)
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx) })
		defer running.Wait()
		defer cancel()
		test(said, func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			out := all
			all = nil
			return out
		})
	})
}

func want(t *testing.T, when string, got []string, pods ...string) {
	t.Helper()
	if !slices.Equal(got, pods) {
		t.Errorf("%s: told %q, want %q", when, got, pods)
	}
}

func TestEvents(t *testing.T) {
	for _, silent := range []bool{false, true} {
		f := &fake{pods: map[string]runtimeapi.ContainerState{"a": running, "b": running}, silent: silent}
		watched(t, f, true, func(said *heard, told func() []string) {
			time.Sleep(2 * headerTime)
			want(t, "what is there at the beginning", told(), "a", "b")
			f.set("a", exited)
			time.Sleep(time.Millisecond)
			f.events <- f.event("a", exited)
			want(t, "an event", told(), "a")
			lists, _ := f.asked()
			time.Sleep(auditEvery - 3*headerTime)
			want(t, "nothing happens", told())
			if now, _ := f.asked(); now != lists {
				t.Errorf("%d lists while there are events", now-lists)
			}
			time.Sleep(auditEvery)
			want(t, "an audit after it was told", told())
			if now, _ := f.asked(); now == lists || said.Missed() != 0 {
				t.Errorf("%d lists, missed %d", now-lists, said.Missed())
			}
			f.set("b", exited)
			time.Sleep(auditEvery + lag)
			if want(t, "nobody told", told(), "b"); said.Missed() != 1 {
				t.Errorf("missed %d", said.Missed())
			}
			f.events <- &runtimeapi.ContainerEventResponse{ContainerId: "c-a"}
			want(t, "an event with the container alone", told(), "a")
			f.events <- &runtimeapi.ContainerEventResponse{ContainerId: "c-nobody's"}
			want(t, "an event of nobody knows whom", told())
		})
	}
}

// TestListed tells of each list, also of one that fails.
func TestListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := inprocess.New(inprocess.Options{})
		runtimeapi.RegisterRuntimeServiceServer(conn, &fake{listing: func() { time.Sleep(2 * time.Second) }})
		w := New(runtimeapi.NewRuntimeServiceClient(conn), slog.New(slog.DiscardHandler), func(string) {})
		var told []string
		w.Listed = func(at, before time.Time) {
			since := "first"
			if !before.IsZero() {
				since = at.Sub(before).String()
			}
			told = append(told, since, time.Since(at).String())
		}
		if _, err := w.list(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		ended, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		if _, err := w.list(ended); err == nil {
			t.Error("a list that was given up has come")
		}
		if want := []string{"first", "2s", "1m2s", "1s"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
		time.Sleep(time.Minute) // the runtime ends, too
	})
}

// A runtime without events is asked for lists, and asked for events now and then.
func TestLists(t *testing.T) {
	f := &fake{pods: map[string]runtimeapi.ContainerState{"a": running}}
	watched(t, f, false, func(said *heard, told func() []string) {
		time.Sleep(time.Millisecond)
		want(t, "at the beginning", told(), "a")
		for i := range 100 {
			f.set("a", []runtimeapi.ContainerState{exited, running}[i%2])
			time.Sleep(listEvery)
			want(t, fmt.Sprint("change ", i), told(), "a")
		}
		if _, follows := f.asked(); follows < 3 || follows > 10 {
			t.Errorf("asked %d times for events", follows)
		}
		f.mu.Lock()
		delete(f.pods, "a")
		f.events = make(chan *runtimeapi.ContainerEventResponse)
		f.mu.Unlock()
		time.Sleep(2 * longest)
		want(t, "it is gone", told(), "a")
		f.set("b", running)
		f.events <- f.event("b", running)
		want(t, "there are events now", told(), "b")
		if said.Missed() != 0 {
			t.Errorf("missed %d", said.Missed())
		}
	})
}

// What happens while the stream is away is found when it is back, or before.
func TestBrokenStream(t *testing.T) {
	f := &fake{pods: map[string]runtimeapi.ContainerState{"a": running}}
	watched(t, f, true, func(_ *heard, told func() []string) {
		time.Sleep(2 * headerTime)
		want(t, "at the beginning", told(), "a")
		f.mu.Lock()
		old := f.events
		f.events = make(chan *runtimeapi.ContainerEventResponse)
		f.mu.Unlock()
		close(old)
		f.set("a", exited)
		time.Sleep(3 * listEvery)
		want(t, "a change without a stream", told(), "a")
		f.set("a", running)
		f.events <- f.event("a", running)
		want(t, "the stream is back", told(), "a")
	})
}

// An event may be newer than the list that is being read.
func TestEventsDuringALists(t *testing.T) {
	f := &fake{pods: map[string]runtimeapi.ContainerState{"a": running}}
	watched(t, f, true, func(said *heard, told func() []string) {
		time.Sleep(2 * headerTime)
		want(t, "at the beginning", told(), "a")
		f.mu.Lock()
		f.listing = func() {
			f.mu.Lock()
			f.pods["a"], f.listing = exited, nil
			f.mu.Unlock()
			time.Sleep(time.Millisecond)
			f.events <- f.event("a", exited)
			time.Sleep(time.Millisecond)
		}
		f.mu.Unlock()
		time.Sleep(auditEvery)
		want(t, "an event during the audit", told(), "a")
		time.Sleep(2 * auditEvery)
		if want(t, "the audits after it", told()); said.Missed() != 0 {
			t.Errorf("missed %d", said.Missed())
		}
	})
}

// TestHangingStream has a stream that goes on and tells nothing any more: it is given up for
// another one, and until one tells of something changes are found as without events.
func TestHangingStream(t *testing.T) {
	f := &fake{pods: map[string]runtimeapi.ContainerState{"a": running}}
	watched(t, f, true, func(said *heard, told func() []string) {
		time.Sleep(2 * headerTime)
		want(t, "at the beginning", told(), "a")
		f.set("a", exited) // and nobody tells
		time.Sleep(auditEvery + lag)
		want(t, "the audit", told(), "a")
		time.Sleep(firstPause + headerTime)
		_, follows := f.asked()
		if follows != 2 {
			t.Errorf("asked %d times for events, want once more", follows)
		}
		for i := range 200 {
			f.set("a", []runtimeapi.ContainerState{running, exited}[i%2])
			time.Sleep(listEvery)
			want(t, fmt.Sprint("change ", i), told(), "a")
		}
		if _, now := f.asked(); now != follows {
			t.Errorf("asked for events %d times more, though lists have everything", now-follows)
		}
		time.Sleep(time.Millisecond)
		f.set("a", running)
		f.events <- f.event("a", running)
		want(t, "events are back", told(), "a")
		time.Sleep(listEvery)
		lists, _ := f.asked()
		time.Sleep(auditEvery / 2)
		want(t, "nothing happens", told())
		if now, _ := f.asked(); now != lists || said.Missed() != 1 {
			t.Errorf("%d lists while there are events, missed %d", now-lists, said.Missed())
		}
	})
}

// TestEventOnItsWay takes no event for missing that comes a moment after a list has its
// change.
func TestEventOnItsWay(t *testing.T) {
	f := &fake{pods: map[string]runtimeapi.ContainerState{"a": running, "b": running}}
	watched(t, f, true, func(said *heard, told func() []string) {
		time.Sleep(2 * headerTime)
		want(t, "at the beginning", told(), "a", "b")
		f.set("a", exited)
		late := f.event("a", exited)
		f.set("b", exited)
		time.Sleep(auditEvery - headerTime + time.Millisecond)
		want(t, "the audit", told(), "a", "b")
		time.Sleep(lag / 2)
		f.events <- late
		want(t, "what was on its way", told(), "a")
		time.Sleep(lag)
		if want(t, "what nobody told", told()); said.Missed() != 1 {
			t.Errorf("missed %d, want that of b alone", said.Missed())
		}
	})
}

// TestGap has everything listed at once, and not with the next audit, when the order of
// events shows that some are missing: one is about what nobody has made, or long past.
func TestGap(t *testing.T) {
	kind := func(f *fake, uid string, k runtimeapi.ContainerEventType, age time.Duration) *runtimeapi.ContainerEventResponse {
		e := f.event(uid, running)
		e.ContainerEventType, e.CreatedAt = k, time.Now().Add(-age).UnixNano()
		return e
	}
	const created, started, stopped = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	for name, c := range map[string]struct {
		event func(f *fake) *runtimeapi.ContainerEventResponse
		gap   bool
	}{
		"of one that is known":   {func(f *fake) *runtimeapi.ContainerEventResponse { return kind(f, "a", stopped, 0) }, false},
		"of one that is made":    {func(f *fake) *runtimeapi.ContainerEventResponse { return kind(f, "c", created, 0) }, false},
		"of one that nobody has": {func(f *fake) *runtimeapi.ContainerEventResponse { return kind(f, "c", started, 0) }, true},
		"of a while ago":         {func(f *fake) *runtimeapi.ContainerEventResponse { return kind(f, "a", started, lag+time.Second) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{pods: map[string]runtimeapi.ContainerState{"a": running, "b": running}}
			watched(t, f, true, func(said *heard, told func() []string) {
				time.Sleep(lag * 3)
				told()
				f.set("b", exited) // of which nobody tells
				e := c.event(f)
				if uid := e.GetPodSandboxStatus().GetMetadata().GetUid(); uid == "c" {
					f.set("c", running)
				}
				f.events <- e
				time.Sleep(2 * time.Millisecond)
				got := told()
				if found := slices.Contains(got, "b"); found != c.gap {
					t.Errorf("told %q, a gap is %v", got, c.gap)
				}
				time.Sleep(lag)
				if missed := said.Missed(); (missed == 1) != c.gap {
					t.Errorf("missed %d", missed)
				}
			})
		})
	}
}

// TestOvertaken keeps what a newer event has told when an older one comes after it.
func TestOvertaken(t *testing.T) {
	f := &fake{pods: map[string]runtimeapi.ContainerState{"a": running}}
	watched(t, f, true, func(said *heard, told func() []string) {
		time.Sleep(2 * headerTime)
		told()
		old := f.event("a", running)
		time.Sleep(time.Millisecond)
		f.set("a", exited)
		f.events <- f.event("a", exited)
		f.events <- old
		want(t, "both", told(), "a", "a")
		time.Sleep(auditEvery + lag)
		if want(t, "the audit", told()); said.Missed() != 0 {
			t.Errorf("missed %d", said.Missed())
		}
	})
}
