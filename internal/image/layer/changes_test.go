package layer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"fairlead.run/internal/errdefs"
)

// Changes that a checkpoint brings are bounded as a layer is.
func TestApplyChanges(t *testing.T) {
	for name, c := range map[string]struct {
		entries int
		size    int64
		want    error
	}{
		"few":      {10, 100, nil},
		"too many": {101, 0, errdefs.ErrExhausted},
		"too much": {3, 1 << 20, errdefs.ErrExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			var tarball bytes.Buffer
			w := tar.NewWriter(&tarball)
			for i := range c.entries {
				if err := w.WriteHeader(&tar.Header{Name: fmt.Sprint(i), Mode: 0o644, Size: c.size}); err != nil {
					t.Fatal(err)
				}
				if _, err := w.Write(make([]byte, c.size)); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			err := ApplyChanges(t.Context(), dir, &tarball, Options{Dir: dir, Limits: Limits{LayerEntries: 100, LayerBytes: 2 << 20}})
			if !errors.Is(err, c.want) {
				t.Fatalf("%v, not %v", err, c.want)
			}
			if _, err := os.Stat(filepath.Join(dir, "0")); c.want == nil && err != nil {
				t.Error(err)
			}
		})
	}
}
