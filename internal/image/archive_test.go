package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image"
	"fairlead.run/test/images"
)

func ociArchive(t *testing.T, all ...images.Named) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := images.WriteOCI(&b, all...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func dockerArchive(t *testing.T, all ...images.Named) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := images.WriteDocker(&b, all...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func importOne(t *testing.T, s *image.Store, b []byte, opts image.ImportOptions) image.Image {
	t.Helper()
	imgs, err := s.Import(t.Context(), bytes.NewReader(b), opts)
	if err != nil {
		t.Fatal(err)
	}
	if len(imgs) != 1 {
		t.Fatalf("%d images", len(imgs))
	}
	return imgs[0]
}

func TestImport(t *testing.T) {
	built := simple(t, "x")
	named := images.Named{Image: built, Names: []string{"docker.io/library/app:1", "registry.example/app:2"}}
	for name, b := range map[string][]byte{
		"oci": ociArchive(t, named), "oci gzip": gzipped(t, ociArchive(t, named)),
		"docker": dockerArchive(t, named), "docker gzip": gzipped(t, dockerArchive(t, named)),
		"docker short": dockerArchive(t, images.Named{Image: built, Names: []string{"app:1", "registry.example/app:2"}}),
	} {
		t.Run(name, func(t *testing.T) {
			s := openSynced(t, config(t))
			img := importOne(t, s, b, image.ImportOptions{})
			if img.ID != built.ID || !slices.Equal(img.RepoTags, named.Names) || len(img.RepoDigests) != 0 {
				t.Errorf("%+v", img)
			}
			l, err := s.Use(t.Context(), "app:1", "c1")
			if err != nil {
				t.Fatal(err)
			}
			if read(t, l, "base/name") != "base x" || read(t, l, "top/name") != "top x" {
				t.Error("wrong files")
			}
		})
	}
}

func TestImportNames(t *testing.T) {
	built := simple(t, "x")
	s := openSynced(t, config(t))
	if img := importOne(t, s, ociArchive(t, images.Named{Image: built}), image.ImportOptions{}); len(img.RepoTags) != 0 {
		t.Errorf("a nameless image is called %v", img.RepoTags)
	}
	if _, err := s.Get(t.Context(), built.ID); err != nil {
		t.Errorf("a nameless image is not known by its id: %v", err)
	}
	img := importOne(t, s, ociArchive(t, images.Named{Image: built, Names: []string{"a.example/b:1"}}), image.ImportOptions{Ref: "mine:3"})
	if !slices.Equal(img.RepoTags, []string{"docker.io/library/mine:3"}) {
		t.Errorf("named %v", img.RepoTags)
	}
	two := ociArchive(t, images.Named{Image: simple(t, "y"), Names: []string{"a.example/y:1"}}, images.Named{Image: simple(t, "z"), Names: []string{"a.example/z:1"}})
	if _, err := s.Import(t.Context(), bytes.NewReader(two), image.ImportOptions{Ref: "both:1"}); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("one name for two images: %v", err)
	}
	if imgs, err := s.Import(t.Context(), bytes.NewReader(two), image.ImportOptions{}); err != nil || len(imgs) != 2 {
		t.Errorf("two images: %d %v", len(imgs), err)
	}
}

func TestImportPicksPlatform(t *testing.T) {
	arm := build(t, images.Spec{Arch: "arm64", Layers: []images.Layer{file("arch", "arm64")}})
	amd := build(t, images.Spec{Arch: "amd64", Layers: []images.Layer{file("arch", "amd64")}})
	idx, err := images.Index(arm, amd)
	if err != nil {
		t.Fatal(err)
	}
	name := []string{"a.example/b:1"}
	for kind, b := range map[string][]byte{
		"index": ociArchive(t, images.Named{Image: idx, Names: name}),
		"flat":  ociArchive(t, images.Named{Image: arm, Names: name}, images.Named{Image: amd, Names: name}),
	} {
		for platform, want := range map[string]*images.Image{"linux/arm64": arm, "linux/amd64": amd} {
			s := openSynced(t, config(t))
			if img := importOne(t, s, b, image.ImportOptions{Platform: platform}); img.ID != want.ID {
				t.Errorf("%s %s: %s", kind, platform, img.Platform.Architecture)
			}
		}
		_, err := openSynced(t, config(t)).Import(t.Context(), bytes.NewReader(b), image.ImportOptions{Platform: "linux/s390x"})
		if !errors.Is(err, errdefs.ErrNotFound) {
			t.Errorf("%s: platform that is not there: %v", kind, err)
		}
	}
}

func TestImportBad(t *testing.T) {
	whole := ociArchive(t, images.Named{Image: simple(t, "x"), Names: []string{"a.example/b:1"}})
	for name, tc := range map[string]struct {
		body []byte
		text string
	}{
		"empty":      {nil, ""},
		"text":       {[]byte("hello, this is no archive"), "neither an OCI layout nor"},
		"long text":  {bytes.Repeat([]byte("hello, this is no archive\n"), 1000), "neither an OCI layout nor"},
		"gzip text":  {gzipped(t, bytes.Repeat([]byte("hello\n"), 1000)), "neither an OCI layout nor"},
		"other tar":  {emptyTar(t), "neither an OCI layout nor"},
		"cut short":  {whole[:len(whole)*2/3], "cut short"},
		"gzip short": {gzipped(t, whole)[:len(gzipped(t, whole))/2], "cut short"},
		"lacks blob": {dropEntry(t, whole, simple(t, "x").Layers()[0].Digest.Encoded()), "lacks " + simple(t, "x").Layers()[0].Digest.String()},
		"bad layer":  {ociArchive(t, images.Named{Image: build(t, images.Spec{Layers: []images.Layer{{Tarball: noise(3000)}}})}), "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			s := openSynced(t, cfg)
			_, err := s.Import(t.Context(), bytes.NewReader(tc.body), image.ImportOptions{})
			if !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%v", err)
			}
			wantClean(t, cfg.Root)
		})
	}
}

func emptyTar(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "x", Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// dropEntry is the archive without the entries whose names hold the text.
func dropEntry(t *testing.T, archive []byte, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	r, w := tar.NewReader(bytes.NewReader(archive)), tar.NewWriter(&b)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(h.Name, text) {
			continue
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(w, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestExportRoundTrip(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	arm := build(t, images.Spec{Arch: "arm64", Layers: []images.Layer{file("arch", "arm64")}})
	amd := build(t, images.Spec{Arch: "amd64", Layers: []images.Layer{file("arch", "amd64")}})
	idx, err := images.Index(arm, amd)
	if err != nil {
		t.Fatal(err)
	}
	multi := reg.Push("multi:1", idx)
	if _, err := s.Pull(t.Context(), image.PullRequest{Ref: multi, Platform: "linux/amd64"}); err != nil {
		t.Fatal(err)
	}
	one := pull(t, s, reg.Push("one:1", simple(t, "x")))
	var b bytes.Buffer
	if err := s.Export(t.Context(), &b, multi, one.ID); err != nil {
		t.Fatal(err)
	}
	other := openSynced(t, config(t))
	imgs, err := other.Import(t.Context(), &b, image.ImportOptions{Platform: "linux/amd64"})
	if err != nil || len(imgs) != 2 {
		t.Fatalf("%v %v", imgs, err)
	}
	if img, err := other.Get(t.Context(), multi); err != nil || img.ID != amd.ID {
		t.Errorf("%s: %v %v", multi, img.ID, err)
	}
	if img, err := other.Get(t.Context(), one.ID); err != nil || len(img.RepoTags) != 0 {
		t.Errorf("%s: %v %v", one.ID, img.RepoTags, err)
	}
	if err := s.Export(t.Context(), io.Discard, "no/such:1"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if err := s.Export(t.Context(), io.Discard); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("%v", err)
	}
}
