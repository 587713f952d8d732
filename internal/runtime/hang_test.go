package runtime

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// A handler whose program hangs, in a trial that keeps no deadline or already
// when it is looked at, is listed as it was known, as often as somebody asks,
// and holds one goroutine.
func TestAHandlerThatHangsDelaysNoList(t *testing.T) {
	for _, where := range []string{"probe", "fingerprint"} {
		t.Run(where, func(t *testing.T) {
			l, release := newLab(), make(chan struct{})
			var hangs atomic.Bool
			var inside atomic.Int32
			hang := func(at, name string) {
				if hangs.Load() && at == where && name == "crun" {
					inside.Add(1)
					<-release
				}
			}
			kind := l.kinds()[KindOCI]
			probe, fingerprint := kind.Probe, kind.Fingerprint
			kind.Probe = func(ctx context.Context, d Definition) pod.HandlerInfo {
				hang("probe", d.Name)
				return probe(ctx, d)
			}
			kind.Fingerprint = func(d Definition) string {
				hang("fingerprint", d.Name)
				return fingerprint(d)
			}
			r, err := New(Config{Wanted: Wanted{Handlers: configured("crun", "runc")}, Log: slog.New(slog.DiscardHandler), ProbeTimeout: time.Millisecond, Search: []string{t.TempDir()}},
				map[string]Kind[driver]{KindOCI: kind})
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range r.List() {
				if !i.Ready {
					t.Fatalf("before anything hangs: %+v", i)
				}
			}
			hangs.Store(true)
			l.change("crun", "", "another program") // needs another trial
			for name, want := range map[string]string{"": "crun", "crun": "crun", "runc": "runc", "runsc": ""} {
				if got := r.NameOf(name); got != want {
					t.Errorf("the name of %q is %q, want %q", name, got, want)
				}
			}
			if n := inside.Load(); n != 0 {
				t.Errorf("names are looked for by a trial")
			}
			for range 20 { // only the first waits for the change
				list := r.List() // returns: the release comes later
				if len(list) != 2 || !list[0].Ready || !list[0].Default || !list[1].Ready {
					t.Errorf("while crun hangs: %+v", list)
				}
			}
			if n := inside.Load(); n != 1 {
				t.Errorf("%d goroutines hang", n)
			}
			if _, err := r.Get("runc"); err != nil {
				t.Errorf("another handler: %v", err)
			}
			if _, err := r.Serving("crun", ""); err != nil {
				t.Errorf("for the pods that exist: %v", err)
			}
			close(release)
			for end := time.Now().Add(20 * time.Second); inside.Load() > 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
				hangs.Store(false)
				if i := r.List()[0]; i.Ready {
					return
				}
			}
			t.Error("crun is not ready after it was freed")
		})
	}
}

// Who needs the handler that hangs is told so, not kept waiting.
func TestGetOfAHandlerThatHangsEnds(t *testing.T) {
	l, release := newLab(), make(chan struct{})
	defer close(release)
	kind := l.kinds()[KindOCI]
	kind.Probe = func(context.Context, Definition) pod.HandlerInfo {
		<-release
		return pod.HandlerInfo{}
	}
	r, err := New(Config{Wanted: Wanted{Handlers: configured("crun")}, Log: slog.New(slog.DiscardHandler), ProbeTimeout: time.Millisecond},
		map[string]Kind[driver]{KindOCI: kind})
	if err != nil {
		t.Fatal(err)
	}
	r.List() // begins the trial
	if _, err := r.Get("crun"); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// A daemon that ends waits for the trials, which clean up after themselves.
func TestRunEndsAfterTrials(t *testing.T) {
	l, begun, release := newLab(), make(chan struct{}), make(chan struct{})
	kind := l.kinds()[KindOCI]
	var cleaned atomic.Bool
	kind.Probe = func(context.Context, Definition) pod.HandlerInfo {
		close(begun)
		<-release
		cleaned.Store(true)
		return pod.HandlerInfo{}
	}
	r, err := New(Config{Wanted: Wanted{Handlers: configured("crun")}, Log: slog.New(slog.DiscardHandler)}, map[string]Kind[driver]{KindOCI: kind})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	<-begun
	cancel()
	time.AfterFunc(20*time.Millisecond, func() { close(release) })
	if err := <-ended; !errors.Is(err, context.Canceled) || !cleaned.Load() {
		t.Errorf("got %v before the trial had cleaned up", err)
	}
}

// A daemon that ends does not wait for ever for a handler that hangs.
func TestRunEndsWhileAHandlerHangs(t *testing.T) {
	l, release := newLab(), make(chan struct{})
	defer close(release)
	kind := l.kinds()[KindOCI]
	kind.Fingerprint = func(Definition) string {
		<-release
		return ""
	}
	r, err := New(Config{Wanted: Wanted{Handlers: configured("crun")}, Log: slog.New(slog.DiscardHandler)}, map[string]Kind[driver]{KindOCI: kind})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
