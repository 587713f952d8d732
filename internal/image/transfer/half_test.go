package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/image/progress"
	"fairlead.run/internal/image/transfer"
)

// The places in the middle of a blob are passed when a part of it is on the
// disk. When nothing happens there the blob arrives whole.
func TestHalf(t *testing.T) {
	blob := bytes.Repeat([]byte("blob"), 1<<20)
	desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: digest.FromBytes(blob), Size: int64(len(blob))}
	for place, bring := range map[string]func(content.Store) error{
		"image.half-fetched": func(s content.Store) error {
			from := remotes.FetcherFunc(func(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(blob)), nil
			})
			_, err := transfer.Handler(s, from, progress.NewTracker("pull"))(t.Context(), desc)
			return err
		},
		"image.half-imported": func(s content.Store) error {
			return content.WriteBlob(t.Context(), transfer.ForImport(s), "ref", bytes.NewReader(blob), desc)
		},
	} {
		t.Run(place, func(t *testing.T) {
			dir := t.TempDir()
			s, err := local.NewStore(dir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = failpoint.Enable("") })
			if err := failpoint.Enable(place + "=error@1"); err != nil {
				t.Fatal(err)
			}
			if err := bring(s); !errors.Is(err, failpoint.ErrInjected) {
				t.Fatalf("nothing failed: %v", err)
			}
			if n := arrived(t, dir); n == 0 || n >= desc.Size {
				t.Errorf("%d of %d bytes were on the disk", n, desc.Size)
			}
			if err := s.Abort(t.Context(), ref(t, s)); err != nil {
				t.Fatal(err)
			}
			if err := bring(s); err != nil {
				t.Fatal(err)
			}
			if b, err := content.ReadBlob(t.Context(), s, desc); err != nil || !bytes.Equal(b, blob) {
				t.Errorf("%d bytes of the blob, %v", len(b), err)
			}
		})
	}
}

// arrived is how much of the only blob is on the disk.
func arrived(t *testing.T, dir string) int64 {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(dir, "ingest", "*", "data"))
	if len(found) != 1 {
		t.Fatalf("on the disk: %v", found)
	}
	info, err := os.Stat(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// ref is under what name the only blob was begun.
func ref(t *testing.T, s content.Store) string {
	t.Helper()
	all, err := s.ListStatuses(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("begun: %v, %v", all, err)
	}
	return all[0].Ref
}
