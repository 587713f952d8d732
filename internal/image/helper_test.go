package image_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/internal/image"
	"fairlead.run/test/images"
)

// logBuffer is where a store under test logs to.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: layers are unpacked with their owners and device nodes")
	}
}

func config(t *testing.T) image.Config {
	t.Helper()
	return image.Config{
		Root:          filepath.Join(t.TempDir(), "root"),
		CertsDirs:     []string{filepath.Join(t.TempDir(), "certs.d")},
		DockerConfigs: []string{},
		Logger:        slog.New(slog.NewTextHandler(&logBuffer{}, nil)),
	}
}

func open(t *testing.T, cfg image.Config) *image.Store {
	t.Helper()
	needRoot(t)
	s, err := image.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// openSynced is a store of a node without containers.
func openSynced(t *testing.T, cfg image.Config) *image.Store {
	t.Helper()
	s := open(t, cfg)
	if err := s.SyncUses(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return s
}

func newRegistry(t *testing.T) *images.Registry {
	t.Helper()
	r := images.NewRegistry()
	t.Cleanup(r.Close)
	return r
}

func build(t *testing.T, s images.Spec) *images.Image {
	t.Helper()
	img, err := images.Build(s)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// file is a layer of one file.
func file(path, body string) images.Layer {
	return images.Layer{Files: map[string]images.File{path: {Body: []byte(body)}}}
}

// simple is an image of two layers, of which the marks make it unlike others.
func simple(t *testing.T, mark string) *images.Image {
	t.Helper()
	return build(t, images.Spec{
		Layers: []images.Layer{file("base/name", "base "+mark), file("top/name", "top "+mark)},
		Config: ocispec.ImageConfig{Entrypoint: []string{"/run"}, Cmd: []string{mark}, User: "65534:7", StopSignal: "SIGUSR1"},
	})
}

func pull(t *testing.T, s *image.Store, ref string) image.Image {
	t.Helper()
	img, err := s.Pull(t.Context(), image.PullRequest{Ref: ref})
	if err != nil {
		t.Fatalf("pull: %v", err)
	}
	return img
}

// read finds a file in the layers as overlay would, without whiteouts.
func read(t *testing.T, l image.Layers, path string) string {
	t.Helper()
	for _, d := range l.Dirs {
		if b, err := os.ReadFile(filepath.Join(d, path)); err == nil {
			return string(b)
		}
	}
	t.Fatalf("no layer has %s", path)
	return ""
}

// leftovers lists what a store has on disk: blobs, downloads and layers.
func leftovers(t *testing.T, root string) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"content/blobs/*/*", "content/ingest/*", "content/incoming/*", "snapshots/snapshots/*"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			out = append(out, strings.TrimPrefix(f, root+"/"))
		}
	}
	return out
}

func wantClean(t *testing.T, root string) {
	t.Helper()
	if l := leftovers(t, root); len(l) > 0 {
		t.Errorf("left behind: %v", l)
	}
}
