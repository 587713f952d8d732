package image_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image"
	"fairlead.run/test/images"
)

// fetched counts how often each manifest and blob was asked for with GET.
func fetched(reg *images.Registry) map[string]int {
	out := map[string]int{}
	for _, r := range reg.Requests() {
		_, digest, ok := strings.Cut(r, "sha256:")
		if ok && strings.HasPrefix(r, "GET") {
			out[digest]++
		}
	}
	return out
}

// Two tags of one digest that are pulled at the same time are fetched once.
func TestTagsOfOneDigestTogether(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	built := simple(t, "x")
	refs := []string{reg.Push("app:1", built), reg.Push("app:2", built), reg.Push("other/name:3", built)}
	// The first who asks for a blob has to wait until all are under way.
	hold := make(chan struct{})
	reg.Inject(images.Fault{Path: "/blobs/", Hold: hold})
	var wg sync.WaitGroup
	for _, ref := range refs {
		wg.Go(func() {
			if img, err := s.Pull(t.Context(), image.PullRequest{Ref: ref}); err != nil || img.ID != built.ID {
				t.Errorf("%s: %v %v", ref, img.ID, err)
			}
		})
	}
	resolved := func() int {
		n := 0
		for _, r := range reg.Requests() {
			if strings.HasPrefix(r, "HEAD") {
				n++
			}
		}
		return n
	}
	for end := time.Now().Add(time.Minute); resolved() < len(refs) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	close(hold)
	wg.Wait()
	got := fetched(reg)
	if len(got) != 4 { // manifest, configuration, two layers
		t.Errorf("fetched %v", got)
	}
	for digest, n := range got {
		if n != 1 {
			t.Errorf("%d times %s", n, digest)
		}
	}
	all, err := s.List(t.Context(), image.Filter{})
	if err != nil || len(all) != 1 || len(all[0].RepoTags) != 3 || len(all[0].RepoDigests) != 2 {
		t.Errorf("%+v %v", all, err)
	}
}

// An image is the same by whatever name, from whatever registry, however its
// layers were packed: one entry, one id, one copy of what it unpacks to.
func TestOneImageOfManyNames(t *testing.T) {
	one, two := newRegistry(t), newRegistry(t)
	cfg := config(t)
	s := openSynced(t, cfg)
	pack := func(c images.Compression) *images.Image {
		a, b := file("a", "1"), file("b", "2")
		a.Compression, b.Compression = c, c
		return build(t, images.Spec{Layers: []images.Layer{a, b}})
	}
	gzip, zstd := pack(images.Gzip), pack(images.Zstd)
	if gzip.ID != zstd.ID || gzip.Desc.Digest == zstd.Desc.Digest {
		t.Fatal("the two images are not what the test needs")
	}
	at := func(host, repo string, img *images.Image) string {
		return host + "/" + repo + "@" + img.Desc.Digest.String()
	}
	refs := []string{
		one.Push("app:1", gzip), one.Push("app:2", gzip), two.Push("mirror/app:1", gzip), two.Push("mirror/app:zstd", zstd),
		at(one.Host(), "app", gzip), at(two.Host(), "mirror/app", zstd),
	}
	for _, ref := range refs {
		if img := pull(t, s, ref); img.ID != gzip.ID {
			t.Errorf("%s is %s", ref, img.ID)
		}
	}
	wantTags := slices.Sorted(slices.Values(refs[:4]))
	wantDigests := slices.Sorted(slices.Values([]string{refs[4], refs[5], at(two.Host(), "mirror/app", gzip)}))
	all, err := s.List(t.Context(), image.Filter{})
	if err != nil || len(all) != 1 || !slices.Equal(all[0].RepoTags, wantTags) || !slices.Equal(all[0].RepoDigests, wantDigests) {
		t.Fatalf("%+v %v", all, err)
	}
	for _, ref := range append(refs, gzip.ID, gzip.ID[7:], gzip.ID[:7+12], gzip.ID[7:7+13], refs[0]+"@"+gzip.Desc.Digest.String()) {
		if img, err := s.Get(t.Context(), ref); err != nil || img.ID != gzip.ID {
			t.Errorf("%s: %v %v", ref, img.ID, err)
		}
	}
	for _, ref := range []string{gzip.ID[7 : 7+11], one.Host() + "/app", one.Host() + "/app:3", at(one.Host(), "app", zstd), "app:1"} {
		if img, err := s.Get(t.Context(), ref); !errors.Is(err, errdefs.ErrNotFound) {
			t.Errorf("%s: %v %v", ref, img.ID, err)
		}
	}
	if n := len(leftovers(t, cfg.Root)); n != 2+1+4+2 { // manifests, configuration, layers packed and unpacked
		t.Errorf("on disk: %v", leftovers(t, cfg.Root))
	}
	// One way to pack it goes, and the image stays.
	if err := s.Remove(t.Context(), refs[3]); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), refs[5]); err != nil {
		t.Fatal(err)
	}
	l, err := s.Use(t.Context(), refs[0], "c1")
	if err != nil || read(t, l, "a")+read(t, l, "b") != "12" {
		t.Errorf("%v %v", l, err)
	}
	if err := errors.Join(s.Release(t.Context(), "c1"), s.Remove(t.Context(), gzip.ID)); err != nil {
		t.Fatal(err)
	}
	wantClean(t, cfg.Root)
}

// Images that the configuration names are pinned by whatever name they have,
// and only for as long as they have it.
func TestPinnedByConfiguration(t *testing.T) {
	reg := newRegistry(t)
	cfg := config(t)
	cfg.Pinned = []string{reg.Host() + "/infra/*", reg.Host() + "/app:1", "short"}
	s := openSynced(t, cfg)
	x, y, z := simple(t, "x"), simple(t, "y"), simple(t, "z")
	pinned := func(img *images.Image) bool {
		t.Helper()
		got, err := s.Get(t.Context(), img.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got.Pinned
	}
	pull(t, s, reg.Push("app:1", x))
	pull(t, s, reg.Push("app:2", y))
	pull(t, s, reg.Push("infra/deep/z:1", z))
	if !pinned(x) || pinned(y) || !pinned(z) {
		t.Errorf("pinned: %t %t %t", pinned(x), pinned(y), pinned(z))
	}
	short := bytes.NewReader(ociArchive(t, images.Named{Image: y}))
	if _, err := s.Import(t.Context(), short, image.ImportOptions{Ref: "docker.io/library/short:latest"}); err != nil || !pinned(y) {
		t.Errorf("a short name: %v", err)
	}
	pull(t, s, reg.Push("app:1", simple(t, "newer"))) // the tag moves on
	if pinned(x) {
		t.Error("an image is pinned that has lost the name")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openSynced(t, cfg)
	if !pinned(z) || pinned(x) {
		t.Error("after a restart")
	}
	if err := s.Remove(t.Context(), z.ID); err != nil {
		t.Errorf("a pinned image cannot be removed by who asks for it: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Pinned = []string{"Not A Name"}
	if _, err := image.Open(t.Context(), cfg); !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), "pinned images") {
		t.Errorf("%v", err)
	}
}
