package nri

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/pod"
)

// host is a core with some pods.
type host struct{ pods []*pod.Record }

func (h host) Pods() []*pod.Record { return h.pods }

func (h host) Limit(context.Context, pod.ContainerID, *pod.Resources) error { return nil }

func driver(t *testing.T, log io.Writer, pods ...*pod.Record) *Driver {
	t.Helper()
	dir := t.TempDir()
	d, err := New(Config{
		Socket: filepath.Join(dir, "nri.sock"), Plugins: dir + "/plugins", PluginConfigs: dir,
		RegistrationTimeout: time.Second, RequestTimeout: time.Second, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	d.Attach(host{pods})
	return d
}

// Without plugins nothing is made for them: no view, and nothing that grows with
// the container.
func TestNobodyListens(t *testing.T) {
	r, c, s := thing()
	s.Process.Env = make([]string, 1000)
	c.Bundle = "/nonexistent"
	d := driver(t, io.Discard)
	allocations := testing.AllocsPerRun(100, func() {
		_ = d.Pod(t.Context(), pod.PluginRunPod, r)
		_ = d.Edit(t.Context(), &pod.BundleRequest{Record: r, Container: c}, s)
		for _, e := range []pod.PluginEvent{pod.PluginCreated, pod.PluginStart, pod.PluginStarted, pod.PluginStopped, pod.PluginRemoved} {
			_ = d.Container(t.Context(), e, r, c)
		}
		_ = d.Pod(t.Context(), pod.PluginStopPod, r)
		_ = d.Pod(t.Context(), pod.PluginRemovePod, r)
	})
	if allocations > 80 {
		t.Errorf("the life of a pod took %.0f allocations", allocations)
	}
	if len(d.told)+len(d.over) != 0 {
		t.Errorf("kept of a pod that is gone: %v %v", d.told, d.over)
	}
}

// A plugin that connects is shown what lives, and what is being made once plugins
// have heard of it.
func TestWhatIsShown(t *testing.T) {
	states := []pod.State{pod.Creating, pod.Created, pod.Running, pod.Exited, pod.Unknown}
	r := &pod.Record{ID: "running", Version: pod.RecordVersion, State: pod.Running}
	for _, s := range states {
		r.Containers = append(r.Containers, &pod.Container{ID: pod.ContainerID(s), State: s})
	}
	making := &pod.Record{ID: "making", Version: pod.RecordVersion, State: pod.Creating}
	d := driver(t, io.Discard, r, making, &pod.Record{ID: "stopped", Version: pod.RecordVersion, State: pod.Exited})
	shown := func() string {
		pods, containers := d.all()
		var out []string
		for _, p := range pods {
			out = append(out, p.Id)
		}
		for _, c := range containers {
			out = append(out, c.Id)
		}
		return strings.Join(out, " ")
	}
	if got := shown(); got != "running Created Running Unknown" {
		t.Error(got)
	}
	if err := d.Pod(t.Context(), pod.PluginRunPod, making); err != nil {
		t.Fatal(err)
	}
	s := &specs.Spec{Process: &specs.Process{Args: []string{"arg"}}}
	if err := d.Edit(t.Context(), &pod.BundleRequest{Record: r, Container: r.Containers[0]}, s); err != nil {
		t.Fatal(err)
	}
	if got := shown(); got != "running making Creating Created Running Unknown" {
		t.Error(got)
	}
	if _, cs := d.all(); len(cs[0].Args) != 1 {
		t.Errorf("its spec is not shown: %v", cs[0])
	}
	for _, e := range []pod.PluginEvent{pod.PluginStopPod, pod.PluginRemovePod} {
		if err := d.Pod(t.Context(), e, making); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Container(t.Context(), pod.PluginUnmade, r, r.Containers[0]); err != nil {
		t.Fatal(err)
	}
	if got := shown(); got != "running Created Running Unknown" {
		t.Error(got)
	}
}

// What the library writes into what it is given stays out of the record.
func TestViewsAreCopies(t *testing.T) {
	r, c, s := thing()
	c.Config.Annotations = map[string]string{"a": "1"}
	s.Process.Env, s.Linux.Sysctl = []string{"A=1"}, map[string]string{"a": "1"}
	v := containerView(r, c, s)
	v.Annotations["a"], v.Env[0], v.Linux.Sysctl["a"] = "2", "A=2", "2"
	if c.Config.Annotations["a"] != "1" || s.Process.Env[0] != "A=1" || s.Linux.Sysctl["a"] != "1" {
		t.Error("a view is the record")
	}
}

// A socket that somebody serves is not taken from them, and one that nobody
// serves is made anew.
func TestTakenSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if taken(path) {
		t.Error("there is none")
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if !taken(path) {
		t.Error("somebody listens")
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if _, err := os.Stat(path); err != nil || taken(path) {
		t.Errorf("nobody listens any more: %v", err)
	}
}

// Where no socket can be made the driver says so and goes on.
func TestSocketThatCannotBeMade(t *testing.T) {
	var log strings.Builder
	d := driver(t, &log)
	if err := os.WriteFile(d.cfg.Plugins, nil, 0o600); err != nil { // no folder
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Run(ctx); err != nil || !strings.Contains(log.String(), "NRI plugins cannot connect") {
		t.Errorf("%v; logged %s", err, log.String())
	}
	if err := d.Pod(t.Context(), pod.PluginRunPod, &pod.Record{ID: "p"}); err != nil {
		t.Error(err)
	}
}
