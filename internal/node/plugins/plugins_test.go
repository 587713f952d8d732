package plugins_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead.run/internal/node/plugins"
	"fairlead.run/internal/node/plugins/plugintest"
)

// kind tells what it is told, in order.
type kind struct {
	told, warned chan string

	mu   sync.Mutex
	fail error
}

func (k *kind) Register(_ context.Context, p plugins.Plugin) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fail != nil {
		return k.fail
	}
	k.told <- "+" + p.Name + " " + p.Endpoint
	return nil
}

func (k *kind) warn(reason, message string) { k.warned <- reason + ": " + message }

func (k *kind) Unregister(p plugins.Plugin) { k.told <- "-" + p.Name }

func (k *kind) failing(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fail = err
}

type machine struct {
	*kind
	folder string
	stop   func()
}

func newMachine(t *testing.T) *machine {
	dir, err := os.MkdirTemp("", "plugins") // a path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &machine{kind: &kind{told: make(chan string, 1000), warned: make(chan string, 1000)}, folder: filepath.Join(dir, "registry")}
}

func (m *machine) boot(t *testing.T) {
	t.Helper()
	r := plugins.New(plugins.Config{Folder: m.folder, Kinds: map[string]plugins.Kind{"CSIPlugin": m.kind}, Warn: m.warn, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	m.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(m.stop)
}

// want waits for what is told next.
func (m *machine) want(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-m.told:
		if got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatalf("nothing is told, want %q", want)
	}
}

func (m *machine) nothing(t *testing.T) {
	t.Helper()
	select {
	case got := <-m.told:
		t.Errorf("told %q", got)
	default:
	}
}

// TestComesAndGoes has plugins that are there before the registry, come while it runs,
// in a folder of their own too, end, and come again.
func TestComesAndGoes(t *testing.T) {
	m := newMachine(t)
	a, b := plugintest.New("CSIPlugin", "a", "/a.sock", "1.0.0"), plugintest.New("CSIPlugin", "b", "", "1.0.0")
	a.Serve(t, m.folder)
	if err := os.WriteFile(filepath.Join(m.folder, "note"), nil, 0o600); err != nil { // is no socket
		t.Fatal(err)
	}
	m.boot(t)
	m.want(t, "+a /a.sock")
	b.Serve(t, filepath.Join(m.folder, "own"))
	m.want(t, "+b "+filepath.Join(m.folder, "own", "b-reg.sock"))
	for _, p := range []*plugintest.Plugin{a, b} {
		if s := <-p.Told; !s.GetPluginRegistered() || s.GetError() != "" {
			t.Errorf("told %v", s)
		}
	}
	a.Stop()
	m.want(t, "-a")
	a.Serve(t, m.folder)
	m.want(t, "+a /a.sock")
	m.stop()
	m.nothing(t) // an agent that ends takes nothing back
	b.Stop()
	m.boot(t)
	m.want(t, "+a /a.sock") // and the next one finds what is there
}

// TestSocketThatNobodyServes is left by a plugin that was killed. Its successor takes its
// place.
func TestSocketThatNobodyServes(t *testing.T) {
	m := newMachine(t)
	p := plugintest.New("CSIPlugin", "a", "/a.sock", "1.0.0")
	p.Serve(t, m.folder)
	p.Kill(t)
	m.boot(t)
	p.Serve(t, m.folder)
	m.want(t, "+a /a.sock")
	p.Kill(t) // another socket now, as it was made anew
	m.want(t, "-a")
	p.Serve(t, m.folder)
	m.want(t, "+a /a.sock")
}

// TestRefused tells plugins why they are not taken, and tries again.
func TestRefused(t *testing.T) {
	m := newMachine(t)
	m.failing(errors.New("it is not liked"))
	a := plugintest.New("CSIPlugin", "a", "/a.sock", "1.0.0")
	other, unnamed := plugintest.New("DRAPlugin", "dra", "", "v1"), plugintest.New("CSIPlugin", "", "")
	for _, p := range []*plugintest.Plugin{a, other, unnamed} {
		p.Serve(t, m.folder)
	}
	m.boot(t)
	for p, want := range map[*plugintest.Plugin]string{
		a: "it is not liked", other: `no plugins of type "DRAPlugin" are taken here, only CSIPlugin`, unnamed: "it says no name",
	} {
		if s := <-p.Told; s.GetPluginRegistered() || !strings.Contains(s.GetError(), want) {
			t.Errorf("told %v, want %q", s, want)
		}
	}
	m.nothing(t)
	m.failing(nil)
	m.want(t, "+a /a.sock")
	for s := range a.Told {
		if s.GetPluginRegistered() {
			break
		}
	}
}

// warns waits for the next event of the node.
func (m *machine) warns(t *testing.T, want ...string) {
	t.Helper()
	select {
	case got := <-m.warned:
		for _, text := range want {
			if !strings.Contains(got, text) {
				t.Errorf("%q has no %q", got, text)
			}
		}
	case <-time.After(time.Minute):
		t.Fatalf("no event, want %q", want)
	}
}

// TestTold has an event of a plugin that is refused for more than a moment, and one only.
func TestTold(t *testing.T) {
	m := newMachine(t)
	m.failing(errors.New("it is not liked"))
	p := plugintest.New("CSIPlugin", "a", "/a.sock", "1.0.0")
	p.Serve(t, m.folder)
	m.boot(t)
	m.warns(t, plugins.FailedRegistration, "a-reg.sock", "it is not liked", "see the log of its pod")
	if tries := len(p.Told); tries < 3 {
		t.Errorf("told after %d tries", tries)
	}
	for range 4 { // it was tried again since
		<-p.Told
	}
	m.failing(nil)
	m.want(t, "+a /a.sock")
	if len(m.warned) > 0 {
		t.Errorf("told again: %s", <-m.warned)
	}
}

// TestNoRoomForTheFolder waits for a folder that cannot be made, as on a full disk.
func TestNoRoomForTheFolder(t *testing.T) {
	m := newMachine(t)
	full := m.folder
	if err := os.WriteFile(full, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m.folder = filepath.Join(full, "registry")
	m.boot(t)
	m.warns(t, plugins.FailedRegistration, "not a directory", "tried again")
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	plugintest.New("CSIPlugin", "a", "/a.sock", "1.0.0").Serve(t, m.folder)
	m.want(t, "+a /a.sock")
}

// TestFolderThatVanishes comes back with its plugins.
func TestFolderThatVanishes(t *testing.T) {
	m := newMachine(t)
	p := plugintest.New("CSIPlugin", "a", "/a.sock", "1.0.0")
	sub := filepath.Join(m.folder, "sub")
	p.Serve(t, sub)
	m.boot(t)
	m.want(t, "+a /a.sock")
	p.Stop()
	if err := os.RemoveAll(sub); err != nil {
		t.Fatal(err)
	}
	m.want(t, "-a")
	p.Serve(t, sub)
	m.want(t, "+a /a.sock")
}
