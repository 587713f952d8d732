package image_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	bolt "go.etcd.io/bbolt"

	"fairlead.run/internal/image"
	"fairlead.run/internal/pod"
)

// TestKeeper wants an audit of a store: what nothing leads to is listed and can
// be freed, what a container uses is kept, and a store that is opened for an
// audit is left as it is.
func TestKeeper(t *testing.T) {
	reg := newRegistry(t)
	cfg := config(t)
	s := openSynced(t, cfg)
	img := pull(t, s, reg.Push("a:1", simple(t, "x")))
	if _, err := s.Use(t.Context(), img.ID, "c1"); err != nil {
		t.Fatal(err)
	}
	c := &pod.Container{ID: "c1", State: pod.Running, Image: pod.ContainerImage{ID: img.ID}}
	records := []*pod.Record{{ID: "p", State: pod.Running, Containers: []*pod.Container{c}}}
	held := func(s *image.Store) (out []string) {
		t.Helper()
		list, err := s.Keeper(true).Held(t.Context(), records)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range list {
			out = append(out, string(h.Kind)+h.Fault)
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	if got := held(s); !slices.Equal(got, []string{"use"}) {
		t.Errorf("a store in order: %v", got)
	}
	if got := s.Keeper(false).Wants(records[0]); len(got) != 1 || got[0].Name != "c1" {
		t.Errorf("it wants %v", got)
	}
	// The image goes while the container is there, and its layers then are
	// nobody's once the container is gone.
	if err := s.Remove(t.Context(), img.ID); err != nil {
		t.Fatal(err)
	}
	if got := held(s); !slices.Equal(got, []string{"use"}) {
		t.Errorf("a removed image in use: %v", got)
	}
	if err := s.Release(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	if got := held(s); !slices.Equal(got, nil) {
		t.Errorf("an image of a container that is on record: %v", got)
	}
	records = nil
	if got := held(s); !slices.Equal(got, []string{"blob", "snapshot"}) {
		t.Errorf("after the last use: %v", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Untouched = true
	idle := open(t, cfg)
	if got := held(idle); !slices.Equal(got, []string{"blob", "snapshot"}) {
		t.Errorf("a store that was opened for an audit: %v", got)
	}
	if err := idle.SyncUses(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	list, err := idle.Keeper(false).Held(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range list {
		if err := idle.Keeper(false).Drop(t.Context(), h); err != nil {
			t.Errorf("drop %+v: %v", h, err)
		}
	}
	if got := held(idle); len(got) != 0 {
		t.Errorf("after all was freed: %v", got)
	}
}

// TestKeeperOfVolumes wants a container found of whose images one is not kept,
// and all of them kept after the repair.
func TestKeeperOfVolumes(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	own, volume := pull(t, s, reg.Push("own:1", simple(t, "x"))), pull(t, s, reg.Push("volume:1", simple(t, "y")))
	c := &pod.Container{ID: "c1", State: pod.Running, Image: pod.ContainerImage{ID: own.ID, Volumes: []string{"", volume.ID}}}
	r := &pod.Record{ID: "p", State: pod.Running, Containers: []*pod.Container{c}}
	if _, err := s.Use(t.Context(), own.ID, "c1"); err != nil {
		t.Fatal(err)
	}
	k := s.Keeper(false)
	held := func() int {
		t.Helper()
		list, err := k.Held(t.Context(), []*pod.Record{r})
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if n := held(); n != 0 {
		t.Errorf("%d uses where that of the volume is missing", n)
	}
	if err := k.Restore(t.Context(), r, pod.Held{Kind: pod.KindUse, Name: "c1", Owner: "c1"}); err != nil {
		t.Fatal(err)
	}
	if n := held(); n != 1 {
		t.Errorf("%d uses after the repair", n)
	}
}

// TestKeeperOfLeases wants the lease of a pull that died found and deleted.
func TestKeeperOfLeases(t *testing.T) {
	cfg := config(t)
	if err := openSynced(t, cfg).Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(filepath.Join(cfg.Root, "metadata.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := namespaces.WithNamespace(t.Context(), "fairlead")
	if _, err := metadata.NewLeaseManager(metadata.NewDB(db, nil, nil)).Create(ctx, leases.WithID("dead")); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Untouched = true
	s := open(t, cfg)
	k := s.Keeper(false)
	for _, want := range []int{1, 0} {
		list, err := k.Held(t.Context(), nil)
		if err != nil || len(list) != want {
			t.Fatalf("%+v (%v), want %d leases", list, err, want)
		}
		for _, h := range list {
			if h.Kind != pod.KindLease || h.Name != "dead" || h.Owner != "" {
				t.Errorf("%+v", h)
			}
			if err := k.Drop(t.Context(), h); err != nil {
				t.Error(err)
			}
		}
	}
}
