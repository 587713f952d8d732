package layer

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/mount"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image/progress"
)

func TestPace(t *testing.T) {
	p := newPace()
	for _, step := range []struct {
		spent          time.Duration
		entries, bytes int64
		late           bool
	}{
		{anyTime, 0, 0, false},
		{perEntry, 0, 0, true},
		{0, 1, 0, false},
		{perChunk, 0, chunk - 1, true},
		{0, 0, 1, false},
		{10 * perEntry, 10, 0, false},
		{1, 0, 0, true},
	} {
		err := p.add(step.spent, step.entries, step.bytes)
		if (err != nil) != step.late || err != nil && !errors.Is(err, errdefs.ErrExhausted) {
			t.Errorf("after %+v: %v", p.spent, err)
		}
	}
	large := newPace()
	if err := large.add(24*time.Hour, 0, 1<<50); err != nil {
		t.Errorf("a petabyte in a day: %v", err)
	}
}

// blob is the content of one layer.
type blob []byte

func (b blob) ReaderAt(context.Context, ocispec.Descriptor) (content.ReaderAt, error) {
	return struct {
		*bytes.Reader
		noClose
	}{bytes.NewReader(b), noClose{}}, nil
}

type noClose struct{}

func (noClose) Close() error { return nil }

// slowLayer has entries behind links that lead through many folders: few bytes of
// an archive for much work.
func slowLayer(t *testing.T, entries int) blob {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	deep := strings.Repeat("d/", 100)
	for i := range 50 {
		if err := w.WriteHeader(&tar.Header{Name: deep + fmt.Sprint(i), Linkname: "/" + deep + fmt.Sprint(i+1), Typeflag: tar.TypeSymlink}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range entries {
		if err := w.WriteHeader(&tar.Header{Name: deep + fmt.Sprintf("0/%d", i), Typeflag: tar.TypeReg, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestLayersTakeNoLongerThanTheyMay(t *testing.T) {
	b := slowLayer(t, 20)
	var clock time.Time
	apply := func(w *Writer) error {
		_, err := w.Apply(t.Context(), ocispec.Descriptor{Size: int64(len(b))}, []mount.Mount{{Type: "bind", Source: t.TempDir()}})
		return err
	}
	writer := func(each time.Duration) *Writer {
		w := NewWriter(Options{
			Content: b, Dir: t.TempDir(), Slots: semaphore.NewWeighted(1), Track: progress.NewTracker("slow"),
			Limits: Limits{LayerEntries: 1000, LayerBytes: 1 << 20},
		})
		w.pace.now = func() time.Time { clock = clock.Add(each); return clock }
		return w
	}
	if err := apply(writer(perEntry / 10)); err != nil {
		t.Errorf("a layer in time: %v", err)
	}
	err := apply(writer(20 * time.Second))
	if !errors.Is(err, errdefs.ErrExhausted) || !strings.Contains(err.Error(), "made to take long") {
		t.Errorf("a layer that takes hours: %v", err)
	}
	// Each layer has time for itself, and all together have not.
	w := writer(time.Second)
	for n := 1; err == nil || n == 1; n++ {
		if err = apply(w); n > 100 {
			t.Fatal("an image of 100 such layers is unpacked")
		}
	}
	if !errors.Is(err, errdefs.ErrExhausted) {
		t.Error(err)
	}
}
