package image_test

import (
	"slices"
	"testing"

	"fairlead.run/internal/image"
)

func TestUntagSaysWhatWent(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	x := simple(t, "x")
	for _, n := range []string{"a:1", "a:2", "b:1"} {
		pull(t, s, reg.Push(n, x))
	}
	host, digest := reg.Host(), "@"+x.Desc.Digest.String()
	for _, tc := range []struct {
		ref  string
		want image.Removed
	}{
		{host + "/none:1", image.Removed{}},
		{host + "/b:1", image.Removed{Names: []string{host + "/b:1", host + "/b" + digest}}},
		{host + "/a:1", image.Removed{Names: []string{host + "/a:1"}}},
		{host + "/a:2", image.Removed{Names: []string{host + "/a:2", host + "/a" + digest}, ID: x.ID}},
		{host + "/a:2", image.Removed{}},
	} {
		got, err := s.Untag(t.Context(), tc.ref)
		slices.Sort(got.Names)
		if slices.Sort(tc.want.Names); err != nil || got.ID != tc.want.ID || !slices.Equal(got.Names, tc.want.Names) {
			t.Errorf("%s: %+v, %v, want %+v", tc.ref, got, err, tc.want)
		}
	}
}
