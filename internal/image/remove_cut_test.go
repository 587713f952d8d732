package image_test

import (
	"errors"
	"fmt"
	"testing"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/image"
)

// A removal that fails anywhere is done by the same request again, and until
// then the list says what there is.
func TestRemoveFails(t *testing.T) {
	for place, listed := range map[string]bool{
		"image.name-unrecorded=error@1": true,
		"image.name-unrecorded=error@2": true,
		"image.name-unrecorded=error@3": true,
		"image.unrecorded=error@1":      false,
		"image.collected=error@1":       false,
	} {
		t.Run(place, func(t *testing.T) {
			reg := newRegistry(t)
			cfg := config(t)
			s := openSynced(t, cfg)
			img := simple(t, "x")
			ref := reg.Push("a:1", img)
			pull(t, s, ref)
			failAt(t, place)
			if err := s.Remove(t.Context(), ref); !errors.Is(err, failpoint.ErrInjected) {
				t.Fatalf("the removal did not fail: %v", err)
			}
			for _, name := range []string{ref, img.ID, fmt.Sprintf("%s/a@%s", reg.Host(), img.Desc.Digest)} {
				if _, err := s.Get(t.Context(), name); (err == nil) != listed {
					t.Errorf("after the failure, %s: %v", name, err)
				}
			}
			if err := s.Remove(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
			if all, err := s.List(t.Context(), image.Filter{}); err != nil || len(all) > 0 {
				t.Errorf("left: %v, %v", all, err)
			}
			wantClean(t, cfg.Root)
		})
	}
}

// failAt makes the places of this test's program fail until the test ends.
func failAt(t *testing.T, places string) {
	t.Helper()
	t.Cleanup(func() { _ = failpoint.Enable("") })
	if err := failpoint.Enable(places); err != nil {
		t.Fatal(err)
	}
}
