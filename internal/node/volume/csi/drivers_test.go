package csi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/plugins"
	"fairlead.run/internal/node/volume/csi"
	"fairlead.run/internal/node/volume/csi/csitest"
)

func TestDriversRegister(t *testing.T) {
	socket := csitest.Serve(t, &csitest.Driver{})
	var told []string
	refuse := error(nil)
	d := csi.NewDrivers(func(string, csi.NodeInfo) error { return refuse }, func(driver string, info *csi.NodeInfo) {
		told = append(told, fmt.Sprintf("%s %v", driver, info != nil && info.ID == "node-1"))
	})
	for _, tt := range []struct {
		p    plugins.Plugin
		want error
	}{
		{plugins.Plugin{Name: "..", Versions: []string{"1.0.0"}}, errdefs.ErrInvalidArgument},
		{plugins.Plugin{Name: "a/b", Versions: []string{"1.0.0"}}, errdefs.ErrInvalidArgument},
		{plugins.Plugin{Name: strings.Repeat("a", 64), Versions: []string{"1.0.0"}}, errdefs.ErrInvalidArgument},
		{plugins.Plugin{Name: "a", Versions: []string{"0.3.0", "2.0.0", "one"}}, errdefs.ErrUnimplemented},
		{plugins.Plugin{Name: "a", Versions: []string{"1.0.0"}, Endpoint: socket + "x"}, errdefs.ErrUnavailable},
	} {
		if tt.p.Endpoint == "" {
			tt.p.Endpoint = socket
		}
		if err := d.Register(t.Context(), tt.p); !errors.Is(err, tt.want) {
			t.Errorf("%+v: %v", tt.p, err)
		}
	}
	old, now := plugins.Plugin{Name: "a", Versions: []string{"0.3.0", "1.0.0"}, Endpoint: socket, Socket: "old"}, plugins.Plugin{Name: "a", Versions: []string{"1.11.0"}, Endpoint: socket, Socket: "new"}
	refuse = errdefs.ErrPrecondition
	if err := d.Register(t.Context(), old); !errors.Is(err, refuse) {
		t.Error(err)
	}
	if _, err := d.Socket("a"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Error(err)
	}
	refuse = nil
	for _, p := range []plugins.Plugin{old, now} {
		if err := d.Register(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	d.Unregister(old) // it was replaced before
	if got, err := d.Socket("a"); got != socket || err != nil {
		t.Error(got, err)
	}
	d.Unregister(now)
	if _, err := d.Socket("a"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Error(err)
	}
	if got := strings.Join(told, ", "); got != "a true, a true, a false" {
		t.Errorf("told %s", got)
	}
}

// TestOnePodAlone has a volume that is ReadWriteOncePod.
func TestOnePodAlone(t *testing.T) {
	b := newBench(t, &csitest.Driver{})
	of := func(name string) csi.Volume {
		return csi.Volume{Driver: "test.csi", Handle: "v", Target: b.target(name), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}}
	}
	b.publish(t, of("one"))
	b.publish(t, of("one"))
	if _, err := b.Publish(t.Context(), of("two")); !errors.Is(err, errdefs.ErrPrecondition) || !strings.Contains(err.Error(), "another pod on this node has it") {
		t.Error(err)
	}
	b.unpublish(t, of("one").Target)
	b.publish(t, of("two"))
	b.unpublish(t, of("two").Target)
	b.wantCalls(t, "Publish Publish Unpublish Publish Unpublish")
}

// TestAttachedVolumes are known from before they are waited for until they are unstaged,
// to the next agent, too.
func TestAttachedVolumes(t *testing.T) {
	b := newBench(t, &csitest.Driver{Abilities: []spec.NodeServiceCapability_RPC_Type{stages}})
	pods := filepath.Join(b.dir, "pods")
	socket := csitest.Serve(t, b.driver)
	changes := 0
	start := func() *csi.Client {
		c := csi.New(csi.Config{
			Socket: func(string) (string, error) { return socket, nil }, Staging: filepath.Join(b.dir, "staging"), Pods: pods, Timeout: time.Minute,
			Changed: func() { changes++ },
		})
		if err := c.Load(); err != nil {
			t.Error(err)
		}
		return c
	}
	want := func(c *csi.Client, n int) {
		t.Helper()
		if got := c.Attached(); len(got) != n || n > 0 && got[0] != (csi.ID{Driver: "test.csi", Handle: "v"}) {
			t.Errorf("attached: %v, want %d", got, n)
		}
	}
	target := func(uid string) string { return filepath.Join(pods, uid, "volumes/kubernetes.io~csi/pv/mount") }
	c := start()
	waits := csi.Volume{Driver: "test.csi", Handle: "v", Target: target("one"), Attach: func(context.Context) (map[string]string, error) {
		want(c, 1)
		return nil, errdefs.ErrUnavailable
	}}
	if _, err := c.Publish(t.Context(), waits); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Error(err)
	}
	want(c, 1)
	c = start()
	want(c, 1)
	b.driver.Hang = true // nobody has to be asked for what was not begun
	if err := c.Unpublish(t.Context(), waits.Target); err != nil {
		t.Error(err)
	}
	b.driver.Hang = false
	want(c, 0)
	for _, uid := range []string{"one", "two"} {
		v := waits
		v.Target, v.Attach = target(uid), func(context.Context) (map[string]string, error) { return nil, nil }
		if _, err := c.Publish(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	plain := csi.Volume{Driver: "test.csi", Handle: "plain", Target: target("three")} // needs no attachment
	if _, err := c.Publish(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	for i, uid := range []string{"three", "one", "two"} {
		want(c, 1)
		c = start()
		want(c, 1)
		if err := c.Unpublish(t.Context(), target(uid)); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	want(c, 0)
	if changes != 6 {
		t.Errorf("%d changes", changes)
	}
}

// TestRecordsThatAreBroken do not keep a pod for ever.
func TestRecordsThatAreBroken(t *testing.T) {
	b := newBench(t, &csitest.Driver{})
	v := csi.Volume{Driver: "test.csi", Handle: "v", Target: b.target("one")}
	b.publish(t, v)
	file := filepath.Join(filepath.Dir(v.Target), "volume.json")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Unpublish(t.Context(), v.Target); err == nil || !strings.Contains(err.Error(), "nobody knows who has mounted") {
		t.Error(err)
	}
	if err := os.WriteFile(file, good, 0o600); err != nil {
		t.Fatal(err)
	}
	other := v
	other.Handle = "w"
	if _, err := b.Publish(t.Context(), other); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Error(err)
	}
	b.unpublish(t, v.Target)
	if err := os.MkdirAll(filepath.Dir(v.Target), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.unpublish(t, v.Target) // nothing is mounted
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Error(err)
	}
}
