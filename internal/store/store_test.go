package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
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

// filled makes a file with so many records that it has several pages.
func filled(t *testing.T, dir string) []*pod.Record {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var all []*pod.Record
	for range 50 {
		r := record("full")
		all = append(all, r)
		if err := s.Put(context.Background(), r); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// A file that is damaged as a whole must not keep the daemon from starting, and
// must stay for who wants to know what was in it.
func TestADamagedFileIsSetAside(t *testing.T) {
	for name, spoil := range map[string]func(b []byte) []byte{
		"truncated to nothing":   func(b []byte) []byte { return b[:1] },
		"truncated in the pages": func(b []byte) []byte { return b[:3*4096] },
		"no database":            func(b []byte) []byte { return []byte(strings.Repeat("garbage ", 4096)) },
		"zeroed":                 func(b []byte) []byte { return make([]byte, len(b)) },
		"pages overwritten": func(b []byte) []byte {
			for i := 2 * 4096; i < len(b); i++ {
				b[i] = 0xa5
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir)
			path := filepath.Join(dir, File)
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			bad := spoil(whole)
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			aside, damage := s.SetAside()
			if damage == nil {
				t.Fatal("nobody is told")
			}
			if kept, err := os.ReadFile(aside); err != nil || !bytes.Equal(kept, bad) {
				t.Errorf("the damaged file is not kept: %v", err)
			}
			r := record("new")
			if err := s.Put(context.Background(), r); err != nil {
				t.Fatal(err)
			}
			got, broken, err := s.Load(context.Background())
			if err != nil || len(broken) > 0 || len(got) != 1 {
				t.Fatal(got, broken, err)
			}
		})
	}
}

func TestAGoodFileIsNotSetAside(t *testing.T) {
	dir := t.TempDir()
	all := filled(t, dir)
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if aside, damage := s.SetAside(); aside != "" || damage != nil {
		t.Fatal(aside, damage)
	}
	if got, _, err := s.Load(context.Background()); err != nil || len(got) != len(all) {
		t.Fatal(len(got), err)
	}
}
