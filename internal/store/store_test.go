package store

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.etcd.io/bbolt"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

func record(name string) *pod.Record {
	return &pod.Record{
		Version:   pod.RecordVersion,
		ID:        pod.NewID(),
		Handler:   "crun",
		State:     pod.Running,
		CreatedAt: time.Unix(1, 2).UTC(),
		Config:    pod.Config{Metadata: pod.Metadata{Name: name, Namespace: "default", UID: "u"}},
		Containers: []*pod.Container{{
			ID: pod.NewContainerID(), State: pod.Exited, ExitCode: 3,
			Process: &pod.RunningProcess{PID: 7, StartTime: 9},
		}},
	}
}

func TestRecordsSurviveReopening(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	a, b := record("a"), record("b")
	for _, r := range []*pod.Record{a, b} {
		if err := s.Put(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Delete(ctx, b.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(ctx, b.ID); err != nil {
		t.Fatalf("deleting what is gone: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, broken, err := s.Load(ctx)
	if err != nil || len(broken) != 0 {
		t.Fatal(err, broken)
	}
	if d := cmp.Diff([]*pod.Record{a}, got, cmpopts.EquateComparable()); d != "" {
		t.Fatal(d)
	}
}

func TestOneBrokenRecordHidesNoOther(t *testing.T) {
	ctx := context.Background()
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	good := record("good")
	if err := s.Put(ctx, good); err != nil {
		t.Fatal(err)
	}
	newer, _ := json.Marshal(map[string]any{"version": pod.RecordVersion + 1, "id": "newer"})
	bad := map[string][]byte{
		"cut":   []byte(`{"version":1,"id":"cu`),
		"newer": newer,
		"other": []byte(`{"version":1,"id":"somebody"}`),
		"empty": {},
	}
	err = s.db.Update(func(tx *bbolt.Tx) error {
		for k, v := range bad {
			if err := tx.Bucket(podsBucket).Put([]byte(k), v); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got, broken, err := s.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].ID != good.ID {
		t.Fatalf("the good record is gone: %v", got)
	}
	for k := range bad {
		if broken[pod.ID(k)] == nil {
			t.Errorf("%s was read", k)
		}
	}
}

func TestSecondDaemonIsRefused(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := Open(dir); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
}

func TestMigrationsRunInOrder(t *testing.T) {
	var order []int
	step := func(n int) migration {
		return func(m map[string]any) error {
			order = append(order, n)
			m["seen"] = float64(n)
			return nil
		}
	}
	out, err := migrate([]byte(`{"version":2,"keep":"me"}`), 2, []migration{step(1), step(2), step(3)})
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"version": float64(4), "keep": "me", "seen": float64(3)}
	if d := cmp.Diff(want, m); d != "" {
		t.Fatal(d)
	}
	if d := cmp.Diff([]int{2, 3}, order); d != "" {
		t.Fatal(d)
	}
	if len(migrations) != pod.RecordVersion-1 {
		t.Fatalf("%d migrations for record version %d", len(migrations), pod.RecordVersion)
	}
}
