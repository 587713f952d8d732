package store

import (
	"errors"
	"slices"
	"testing"

	"go.etcd.io/bbolt"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// TestKeeper wants records that the file has lost written again, and no record
// deleted.
func TestKeeper(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := &pod.Record{ID: "p", State: pod.Running}
	if err := s.Put(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	err = s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(podsBucket).Put([]byte("torn"), []byte("{")) })
	if err != nil {
		t.Fatal(err)
	}
	names := func() (out []string) {
		t.Helper()
		list, err := s.Held(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range list {
			out = append(out, h.Name)
		}
		slices.Sort(out)
		return out
	}
	if got := names(); !slices.Equal(got, []string{"p", "torn"}) {
		t.Errorf("held %v", got)
	}
	want := s.Wants(r)
	if len(want) != 1 || want[0].Name != "p" || len(s.Wants(&pod.Record{ID: "torn"})) != 0 {
		t.Errorf("wants %v", want)
	}
	if err := s.Drop(t.Context(), want[0]); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Errorf("drop: %v", err)
	}
	if err := s.Delete(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(t.Context(), r, want[0]); err != nil {
		t.Fatal(err)
	}
	if got := names(); !slices.Equal(got, []string{"p", "torn"}) {
		t.Errorf("after it was put back: %v", got)
	}
}
