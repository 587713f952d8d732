package image_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image"
	"fairlead.run/test/images"
)

func TestPull(t *testing.T) {
	for name, layer := range map[string]func(images.Layer) images.Layer{
		"gzip":  func(l images.Layer) images.Layer { l.Compression = images.Gzip; return l },
		"zstd":  func(l images.Layer) images.Layer { l.Compression = images.Zstd; return l },
		"plain": func(l images.Layer) images.Layer { l.Compression = images.Plain; return l },
		"mislabelled": func(l images.Layer) images.Layer { // zstd that calls itself gzip
			l.Compression, l.MediaType = images.Zstd, "application/vnd.docker.image.rootfs.diff.tar.gzip"
			return l
		},
	} {
		for _, docker := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				reg := newRegistry(t)
				built := build(t, images.Spec{Docker: docker, Layers: []images.Layer{layer(file("a/b", "one")), layer(file("c", "two"))}})
				cfg := config(t)
				s := openSynced(t, cfg)
				ref := reg.Push("team/app:1", built)
				img := pull(t, s, ref)
				if img.ID != built.ID {
					t.Errorf("id %s, want %s", img.ID, built.ID)
				}
				repo := reg.Host() + "/team/app"
				if !slices.Equal(img.RepoTags, []string{ref}) || !slices.Equal(img.RepoDigests, []string{repo + "@" + built.Desc.Digest.String()}) {
					t.Errorf("names: %v %v", img.RepoTags, img.RepoDigests)
				}
				l, err := s.Use(t.Context(), img.ID, "c1")
				if err != nil {
					t.Fatal(err)
				}
				if len(l.Dirs) != 2 || read(t, l, "a/b") != "one" || read(t, l, "c") != "two" {
					t.Errorf("layers: %v", l.Dirs)
				}
				if _, err := os.Stat(filepath.Join(l.Dirs[0], "c")); err != nil {
					t.Errorf("the topmost layer does not come first: %v", err)
				}
			})
		}
	}
}

// TestPullCommits fails if a pull flushes the databases more often than it has
// to: twice for each layer in both of them, and once for the names of the image.
func TestPullCommits(t *testing.T) {
	reg, cfg := newRegistry(t), config(t)
	ref := reg.Push("app:1", simple(t, "x"))
	var last [2]int
	commits := func(work func(s *image.Store)) (n [2]int) {
		s := openSynced(t, cfg)
		work(s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for i, file := range []string{"metadata.db", "snapshots/metadata.db"} {
			id := transactions(t, filepath.Join(cfg.Root, file))
			n[i], last[i] = id-last[i], id
		}
		return n
	}
	commits(func(*image.Store) {}) // what the first start makes
	idle := commits(func(*image.Store) {})
	busy := commits(func(s *image.Store) { pull(t, s, ref) })
	const layers = 2
	for i, want := range []int{2*layers + 1, 2 * layers} {
		if got := busy[i] - idle[i]; got != want {
			t.Errorf("database %d: %d transactions, want %d", i, got, want)
		}
	}
}

// transactions is how many were committed to a database in its life.
func transactions(t *testing.T, file string) (n int) {
	t.Helper()
	db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.View(func(tx *bolt.Tx) error { n = tx.ID(); return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPullReadsConfig(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	img := pull(t, s, reg.Push("app:1", simple(t, "x")))
	c := img.Config
	if c.User != "65534:7" || c.StopSignal != "SIGUSR1" || !slices.Equal(c.Entrypoint, []string{"/run"}) || !slices.Equal(c.Cmd, []string{"x"}) {
		t.Errorf("config: %+v", c)
	}
	if img.Created.IsZero() || img.Size == 0 || img.Layers != 2 {
		t.Errorf("image: %+v", img)
	}
}

func TestPullPicksPlatform(t *testing.T) {
	reg := newRegistry(t)
	byArch := map[string]*images.Image{}
	for _, arch := range []string{"amd64", "arm64", "s390x"} {
		byArch[arch] = build(t, images.Spec{Arch: arch, Layers: []images.Layer{file("arch", arch)}})
	}
	idx, err := images.Index(byArch["s390x"], byArch["arm64"], byArch["amd64"])
	if err != nil {
		t.Fatal(err)
	}
	ref := reg.Push("multi:1", idx)
	cfg := config(t)
	cfg.Platform = "linux/arm64"
	s := openSynced(t, cfg)
	if img := pull(t, s, ref); img.ID != byArch["arm64"].ID {
		t.Errorf("pulled %s %s, want arm64", img.ID, img.Platform.Architecture)
	}
	img, err := s.Pull(t.Context(), image.PullRequest{Ref: ref, Platform: "linux/s390x"})
	if err != nil || img.ID != byArch["s390x"].ID {
		t.Errorf("pull for s390x: %v %v", img.ID, err)
	}
	if got, err := s.Get(t.Context(), ref); err != nil || got.ID != byArch["s390x"].ID {
		t.Errorf("the name is not that of the variant that was pulled: %v %v", got.ID, err)
	}
	if _, err := s.Get(t.Context(), byArch["arm64"].ID); err != nil {
		t.Errorf("the other variant is gone: %v", err)
	}
	_, err = s.Pull(t.Context(), image.PullRequest{Ref: ref, Platform: "linux/riscv64"})
	if !errors.Is(err, errdefs.ErrNotFound) || !strings.Contains(err.Error(), "linux/arm64") || !strings.Contains(err.Error(), "no variant for linux/riscv64") {
		t.Errorf("pull for a platform that is not there: %v", err)
	}
}

func TestPullByDigest(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	built := simple(t, "x")
	ref := reg.Push("app:1", built)
	byDigest := strings.TrimSuffix(ref, ":1") + "@" + built.Desc.Digest.String()
	for _, r := range []string{byDigest, ref + "@" + built.Desc.Digest.String()} {
		img := pull(t, s, r)
		if len(img.RepoTags) != 0 || !slices.Equal(img.RepoDigests, []string{byDigest}) {
			t.Errorf("%s: names %v %v", r, img.RepoTags, img.RepoDigests)
		}
	}
}

// A tag that moves leaves the older image without a tag, but there.
func TestPullMovedTag(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	old := pull(t, s, reg.Push("app:1", simple(t, "old")))
	now := pull(t, s, reg.Push("app:1", simple(t, "new")))
	if old.ID == now.ID {
		t.Fatal("the pull did not see the new image")
	}
	got, err := s.Get(t.Context(), old.ID)
	if err != nil || len(got.RepoTags) != 0 || len(got.RepoDigests) != 1 {
		t.Errorf("old image: %+v %v", got, err)
	}
}

func TestPullAgainFetchesNothing(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	ref := reg.Push("app:1", simple(t, "x"))
	pull(t, s, ref)
	before := len(reg.Requests())
	pull(t, s, ref)
	for _, r := range reg.Requests()[before:] {
		if strings.HasPrefix(r, "GET") {
			t.Errorf("second pull asked for %s", r)
		}
	}
}

func TestWhiteouts(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	img := pull(t, s, reg.Push("app:1", build(t, images.Spec{Layers: []images.Layer{
		{Files: map[string]images.File{"a/gone": {}, "b/hidden": {}}},
		{Files: map[string]images.File{"a/.wh.gone": {}, "b/.wh..wh..opq": {}, "b/new": {}}},
	}})))
	l, err := s.Use(t.Context(), img.ID, "c1")
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(l.Dirs[0], "a/gone"), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
		t.Errorf("a/gone is not overlay's whiteout: %v %o", err, st.Mode)
	}
	value := make([]byte, 8)
	n, err := unix.Lgetxattr(filepath.Join(l.Dirs[0], "b"), "trusted.overlay.opaque", value)
	if err != nil || string(value[:n]) != "y" {
		t.Errorf("b is not opaque: %v %q", err, value[:max(n, 0)])
	}
}

// Layers are unpacked side by side, so that a layer that has a file in /tmp but
// does not list /tmp must still not turn it into root's 0755.
func TestImpliedFoldersInherit(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	img := pull(t, s, reg.Push("app:1", build(t, images.Spec{Layers: []images.Layer{
		{Files: map[string]images.File{
			"tmp": {Dir: true, Mode: 0o1777}, "srv/www": {Dir: true, Mode: 0o2750, UID: 33, GID: 34}, "opt/link": {Symlink: "../tmp"},
		}},
		file("unrelated", ""),
		{Sparse: true, Files: map[string]images.File{"tmp/x": {}, "srv/www/html/index": {}, "opt/link/y": {}, "opt2/z": {}}},
	}})))
	l, err := s.Use(t.Context(), img.ID, "c1")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct{ mode, uid, gid uint32 }{
		"tmp": {0o1777, 0, 0}, "srv": {0o755, 0, 0}, "srv/www": {0o2750, 33, 34}, "srv/www/html": {0o755, 0, 0}, "opt2": {0o755, 0, 0},
	} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(l.Dirs[0], path), &st); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if st.Mode&0o7777 != want.mode || st.Uid != want.uid || st.Gid != want.gid {
			t.Errorf("%s: %o %d:%d, want %o %d:%d", path, st.Mode&0o7777, st.Uid, st.Gid, want.mode, want.uid, want.gid)
		}
	}
}

func TestPullWithoutLayers(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	img := pull(t, s, reg.Push("empty:1", build(t, images.Spec{})))
	l, err := s.Use(t.Context(), img.ID, "c1")
	if err != nil || len(l.Dirs) != 1 {
		t.Fatalf("layers of a layerless image: %v %v", l, err)
	}
	if entries, err := os.ReadDir(l.Dirs[0]); err != nil || len(entries) != 0 {
		t.Errorf("its one folder is not empty: %v %v", entries, err)
	}
}

func TestPullProgress(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	ref := reg.Push("app:1", simple(t, "x"))
	var seen []image.Progress
	if _, err := s.Pull(t.Context(), image.PullRequest{Ref: ref, Progress: func(p image.Progress) { seen = append(seen, p) }}); err != nil {
		t.Fatal(err)
	}
	if first := seen[0]; first.Phase != image.PhaseResolving || first.Ref != ref {
		t.Errorf("first report: %+v", first)
	}
	last := seen[len(seen)-1]
	if last.Phase != image.PhaseDone || len(last.Layers) != 2 {
		t.Fatalf("last report: %+v", last)
	}
	for _, l := range last.Layers {
		if l.Phase != image.PhaseDone || l.Done != l.Total || l.Total == 0 {
			t.Errorf("layer: %+v", l)
		}
	}
}

// What an image says about itself becomes no label, and no URL in it is fetched.
func TestPullDistrustsDescriptors(t *testing.T) {
	reg, other := newRegistry(t), newRegistry(t)
	s := openSynced(t, config(t))
	l := file("x", "true")
	l.Annotations = map[string]string{
		"containerd.io/snapshot/overlay.upperdir": "/etc",
		"containerd.io/snapshot/uidmapping":       "0:100000:65536",
		"containerd.io/gc.root":                   "now",
	}
	l.URLs = []string{"http://" + other.Host() + "/v2/elsewhere"}
	img := pull(t, s, reg.Push("evil:1", build(t, images.Spec{Layers: []images.Layer{l, file("y", "")}})))
	layers, err := s.Use(t.Context(), img.ID, "c1")
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(layers.Dirs, "/etc") || read(t, layers, "x") != "true" {
		t.Errorf("layers: %v", layers.Dirs)
	}
	if r := other.Requests(); len(r) != 0 {
		t.Errorf("the image made this node fetch %v", r)
	}
}
