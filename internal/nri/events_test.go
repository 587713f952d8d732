package nri

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"fairlead.run/internal/pod"
)

// refuser is a plugin that counts the ends it is told of, and fails as long as
// refuse is set.
type refuser struct {
	refuse           atomic.Bool
	pods, containers atomic.Int32
	synced           chan struct{}
}

func (p *refuser) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	close(p.synced)
	return nil, nil
}

func (p *refuser) StopPodSandbox(context.Context, *api.PodSandbox) error {
	p.pods.Add(1)
	return p.answer()
}

func (p *refuser) StopContainer(context.Context, *api.PodSandbox, *api.Container) ([]*api.ContainerUpdate, error) {
	p.containers.Add(1)
	return nil, p.answer()
}

func (p *refuser) answer() error {
	if p.refuse.Load() {
		return errors.New("not now")
	}
	return nil
}

// listens says whether somebody listens at a socket. Its file is there a moment
// before that, and who connects to find out is a plugin.
func listens(t *testing.T, path string) bool {
	sockets, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(sockets)) {
		const flags, accepts = 3, "00010000" // __SO_ACCEPTCON
		f := strings.Fields(line)
		if f[len(f)-1] == path && f[flags] == accepts {
			return true
		}
	}
	return false
}

// connected is a driver that runs, with one plugin.
func connected(t *testing.T, p *refuser) *Driver {
	t.Helper()
	d := driver(t, io.Discard)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	late := time.After(20 * time.Second)
	for {
		if listens(t, d.cfg.Socket) {
			break
		}
		select {
		case <-late:
			t.Fatal("nobody listens for plugins")
		case <-time.After(time.Millisecond):
		}
	}
	p.synced = make(chan struct{})
	s, err := stub.New(p, stub.WithPluginIdx("10"), stub.WithPluginName("refuser"), stub.WithSocketPath(d.cfg.Socket))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	select {
	case <-p.synced:
	case <-late:
		t.Fatal("the plugin is not synchronised")
	}
	for !d.Active() { // the library counts it after that
		select {
		case <-late:
			t.Fatal("the plugin does not count")
		case <-time.After(time.Millisecond):
		}
	}
	return d
}

// An end that could not be told of is told of again by whoever comes next; one
// that was told of is not.
func TestAnEndIsToldUntilItIsHeard(t *testing.T) {
	p := &refuser{}
	d := connected(t, p)
	r, c, _ := thing()
	tell := func() (container, pods error) {
		return d.Container(t.Context(), pod.PluginStopped, r, c), d.Pod(t.Context(), pod.PluginStopPod, r)
	}
	p.refuse.Store(true)
	for range 2 {
		if a, b := tell(); a == nil || b == nil {
			t.Errorf("the plugin's refusal is lost: %v, %v", a, b)
		}
	}
	if n, m := p.containers.Load(), p.pods.Load(); n != 2 || m != 2 {
		t.Errorf("two tried, and it was told %d and %d times", n, m)
	}
	p.refuse.Store(false)
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if d.Container(late, pod.PluginStopped, r, c) == nil {
		t.Error("told by somebody whose time is up")
	}
	for range 3 {
		if a, b := tell(); a != nil || b != nil {
			t.Errorf("%v, %v", a, b)
		}
	}
	if n, m := p.containers.Load(), p.pods.Load(); n != 3 || m != 3 {
		t.Errorf("heard of in the end, and told %d and %d times in all", n, m)
	}
}
