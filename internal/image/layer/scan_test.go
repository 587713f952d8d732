package layer

import (
	"archive/tar"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
)

func TestScanRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		entries []tar.Header
		kind    error
		text    string
	}{
		"as much as may be":     {[]tar.Header{{Name: "a", Size: 50}, {Name: "b", Size: 50}, {Name: "c"}}, nil, ""},
		"too many":              {[]tar.Header{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}, errdefs.ErrExhausted, "more than 3 files"},
		"too many folders":      {[]tar.Header{{Name: "a/b"}, {Name: "c/d"}}, errdefs.ErrExhausted, "more than 3 files"},
		"folders counted twice": {[]tar.Header{{Name: "a", Typeflag: tar.TypeDir}, {Name: "a/b"}, {Name: "a/c"}}, nil, ""},
		"too large together":    {[]tar.Header{{Name: "a", Size: 50}, {Name: "b", Size: 51}}, errdefs.ErrExhausted, "more than 100 bytes"},
		"no sum of sizes":       {[]tar.Header{{Name: "a", Size: 1}, {Name: "b", Size: math.MaxInt64}}, errdefs.ErrExhausted, "more than 100 bytes"},
		"names too long":        {[]tar.Header{{Name: strings.Repeat("a", 15)}, {Name: strings.Repeat("b", 16)}}, errdefs.ErrExhausted, "names of its entries"},
		"a path too long":       {[]tar.Header{{Name: strings.Repeat("a/", 4000)}}, errdefs.ErrInvalidArgument, "path of 8000 bytes"},
		"a target too long":     {[]tar.Header{{Name: "a", Linkname: strings.Repeat("a", 4096)}}, errdefs.ErrInvalidArgument, "path of 4096 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEntryScan(patient(t, 3, 100))
			s.names = 30
			var err error
			for i := range tc.entries {
				if _, err = s.visit(&tc.entries[i]); err != nil && i < len(tc.entries)-1 {
					t.Errorf("entry %d: %v", i, err)
				}
			}
			if !errors.Is(err, tc.kind) || err != nil && !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%v", err)
			}
		})
	}
}

// The headers of folders are kept until the layer is unpacked, but not what is
// large in them.
func TestScanKeepsNoAttributes(t *testing.T) {
	s := newEntryScan(patient(t, 10, 100))
	attributes := map[string]string{"SCHILY.xattr.user.a": "value"}
	first := &tar.Header{Name: "a", Linkname: "b", PAXRecords: attributes, Uname: "u", Gname: "g"}
	if _, err := s.visit(first); err != nil || first.PAXRecords == nil || first.Linkname != "b" {
		t.Errorf("not whole when it is made: %+v %v", first, err)
	}
	if _, err := s.visit(&tar.Header{Name: "c"}); err != nil || first.PAXRecords != nil || first.Uname != "" || first.Gname != "" || first.Name != "a" {
		t.Errorf("kept: %+v %v", first, err)
	}
}

func TestImplied(t *testing.T) {
	s := newEntryScan(patient(t, 10, 100))
	for _, h := range []tar.Header{{Name: "a", Typeflag: tar.TypeDir}, {Name: "/a/b/c/d"}, {Name: "a/b/e"}, {Name: "f"}} {
		if _, err := s.visit(&h); err != nil {
			t.Fatal(err)
		}
	}
	got := s.implied()
	slices.Sort(got)
	if want := []string{"a/b", "a/b/c"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// patient is a watch over a layer that may have so much, and has time.
func patient(t *testing.T, entries, bytes int64) *watch {
	return newWatch(bound{entries: entries, bytes: bytes, dir: t.TempDir()}, newPace(), func() error { return nil })
}

func TestCappedReader(t *testing.T) {
	c := &cappedReader{r: zeros{}, watch: patient(t, 1, 1<<20)}
	if n, err := io.Copy(io.Discard, c); !errors.Is(err, errdefs.ErrExhausted) || n > 1<<20 || !strings.Contains(err.Error(), "more than 1048576 bytes, the limit of a layer") {
		t.Errorf("after %d bytes: %v", n, err)
	}
	over := errors.New("over")
	c = &cappedReader{r: zeros{}, watch: patient(t, 1, 1<<20)}
	c.watch.ended = func() error { return over }
	if n, err := io.Copy(io.Discard, c); !errors.Is(err, over) || n != 0 {
		t.Errorf("%d bytes of a layer that nobody wants any more: %v", n, err)
	}
}
