package images_test

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/internal/image"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/rootfs"
	"fairlead.run/test/images"
)

func build(t *testing.T, s images.Spec) *images.Image {
	t.Helper()
	img, err := images.Build(s)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestBuildIsReproducible(t *testing.T) {
	spec := images.Spec{Layers: []images.Layer{{Files: map[string]images.File{"a/b": {}, "c": {}, "d/e/f": {Body: []byte("x")}}}}}
	if a, b := build(t, spec), build(t, spec); a.Desc.Digest != b.Desc.Digest || a.ID != b.ID {
		t.Errorf("%s and %s", a.Desc.Digest, b.Desc.Digest)
	}
}

func TestRegistryCloses(t *testing.T) {
	r := images.NewRegistry()
	img := build(t, images.Spec{Layers: []images.Layer{{Files: map[string]images.File{"a": {Body: make([]byte, 1<<16)}}, Compression: images.Plain}}})
	r.Push("a:1", img)
	r.Inject(images.Fault{Path: "/blobs/", Stall: 10})
	resp, err := http.Get("http://" + r.Host() + "/v2/a/blobs/" + img.Layers()[0].Digest.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	r.Close() // must not wait for the answer that stalls
}

func TestApplets(t *testing.T) {
	below, err := images.Busybox()
	if err != nil {
		t.Skip(err)
	}
	got, err := images.Applets(below)
	if err != nil {
		t.Fatal(err)
	}
	if f := got.Files["bin/nsenter"]; f.Symlink != "busybox" {
		t.Errorf("nsenter, which the layer below lacks, is %+v", f)
	}
	if _, ok := got.Files["bin/sh"]; ok {
		t.Error("sh is there once more")
	}
}

// From a built image by way of an archive and the store to a program that runs
// in the mounted root.
func TestBusyboxRuns(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts and changes the root directory")
	}
	layer, err := images.Busybox()
	if err != nil {
		t.Skip(err)
	}
	img := build(t, images.Spec{
		Layers: []images.Layer{layer, {Files: map[string]images.File{"etc/greeting": {Body: []byte("hello\n")}}}},
		Config: ocispec.ImageConfig{Cmd: []string{"/bin/sh"}},
	})
	var archive bytes.Buffer
	if err := images.WriteOCI(&archive, images.Named{Image: img, Names: []string{"test.example/busybox:1"}}); err != nil {
		t.Fatal(err)
	}
	base := t.TempDir()
	root, state := filepath.Join(base, "root"), filepath.Join(base, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	store, err := image.Open(t.Context(), image.Config{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if _, err := store.Import(t.Context(), &archive, image.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	id := pod.NewContainerID()
	layers, err := store.Use(t.Context(), "test.example/busybox:1", string(id))
	if err != nil {
		t.Fatal(err)
	}
	roots, err := rootfs.New(state, root, store.ApplyChanges)
	if err != nil {
		t.Skip(err)
	}
	path, err := roots.Mount(t.Context(), &pod.Record{}, id, layers.Dirs, "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := roots.Remove(context.Background(), id); err != nil {
			t.Error(err)
		}
	}()
	cmd := exec.Command("/bin/sh", "-c", "cat /etc/greeting && echo x >/tmp/x && ls /tmp && id -u && stat -c %a /tmp && uname && [ -x /bin/sh ] && awk 'BEGIN{print 1+1}'")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: path}
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if got := strings.Fields(string(out)); err != nil || strings.Join(got, " ") != "hello x 0 1777 Linux 2" {
		t.Errorf("%q %v", got, err)
	}
}
