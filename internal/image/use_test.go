package image_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/plugins/snapshots/overlay"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image"
	"fairlead.run/test/images"
)

func TestRemove(t *testing.T) {
	x, y := simple(t, "x"), simple(t, "y")
	for name, tc := range map[string]struct {
		remove func(host string, img *images.Image) string
		left   []string // names that the image has then, without the host
	}{
		"by id":           {func(_ string, i *images.Image) string { return i.ID }, nil},
		"by short id":     {func(_ string, i *images.Image) string { return i.ID[7:20] }, nil},
		"by one tag":      {func(h string, _ *images.Image) string { return h + "/a:1" }, []string{"/a:2", "/b:1", "/a@", "/b@"}},
		"by the last tag": {func(h string, _ *images.Image) string { return h + "/b:1" }, []string{"/a:1", "/a:2", "/a@"}},
		"by digest":       {func(h string, i *images.Image) string { return h + "/a@" + i.Desc.Digest.String() }, []string{"/a:1", "/a:2", "/b:1", "/b@"}},
		"not there":       {func(h string, _ *images.Image) string { return h + "/c:1" }, []string{"/a:1", "/a:2", "/b:1", "/a@", "/b@"}},
	} {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t)
			cfg := config(t)
			s := openSynced(t, cfg)
			for _, n := range []string{"a:1", "a:2", "b:1"} {
				pull(t, s, reg.Push(n, x))
			}
			pull(t, s, reg.Push("other:1", y))
			for range 2 { // once more is no error
				if err := s.Remove(t.Context(), tc.remove(reg.Host(), x)); err != nil {
					t.Fatal(err)
				}
			}
			img, err := s.Get(t.Context(), x.ID)
			if (err == nil) != (tc.left != nil) {
				t.Errorf("get: %v", err)
			}
			var left []string
			for _, n := range append(img.RepoTags, img.RepoDigests...) {
				n, _, _ = strings.Cut(strings.TrimPrefix(n, reg.Host()), "sha256:")
				left = append(left, n)
			}
			if !slices.Equal(left, tc.left) {
				t.Errorf("left %v, want %v", left, tc.left)
			}
			if _, err := s.Get(t.Context(), y.ID); err != nil {
				t.Errorf("the other image: %v", err)
			}
		})
	}
}

func TestRemoveFreesDisk(t *testing.T) {
	reg := newRegistry(t)
	cfg := config(t)
	s := openSynced(t, cfg)
	img := pull(t, s, reg.Push("a:1", simple(t, "x")))
	before, err := s.Usage(t.Context())
	if err != nil || before.Bytes == 0 || before.Inodes == 0 || before.Path != cfg.Root {
		t.Fatalf("usage: %+v %v", before, err)
	}
	if err := s.Remove(t.Context(), img.ID); err != nil {
		t.Fatal(err)
	}
	wantClean(t, cfg.Root)
	if u, err := s.Usage(t.Context()); err != nil || u.Bytes != 0 {
		t.Errorf("usage: %+v %v", u, err)
	}
}

func TestUseProtects(t *testing.T) {
	reg := newRegistry(t)
	cfg := config(t)
	s := openSynced(t, cfg)
	ref := reg.Push("a:1", simple(t, "x"))
	img := pull(t, s, ref)
	l, err := s.Use(t.Context(), ref, "c1")
	if err != nil || l.Image.ID != img.ID || l.Image.Ref() != img.RepoDigests[0] {
		t.Fatal(l, err)
	}
	if _, err := s.Use(t.Context(), img.ID, "c2"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), img.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Use(t.Context(), img.ID, "c3"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("use of a removed image: %v", err)
	}
	read(t, l, "base/name")

	// A new daemon learns from its records what is in use.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	if err := s.SyncUses(t.Context(), map[string][]string{"c2": {img.ID}}); err != nil {
		t.Fatal(err)
	}
	read(t, l, "top/name")
	if err := s.Release(t.Context(), "c2"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), "unrelated:1"); err != nil {
		t.Fatal(err)
	}
	pull(t, s, reg.Push("b:1", simple(t, "y")))
	if err := s.Remove(t.Context(), reg.Host()+"/b:1"); err != nil { // collects
		t.Fatal(err)
	}
	wantClean(t, cfg.Root)
}

// A container may use several images, and its release lets go of all of them.
func TestUseSeveral(t *testing.T) {
	reg := newRegistry(t)
	cfg := config(t)
	s := openSynced(t, cfg)
	own, volume := pull(t, s, reg.Push("own:1", simple(t, "x"))), pull(t, s, reg.Push("volume:1", simple(t, "y")))
	var used []image.Layers
	for _, id := range []string{own.ID, volume.ID, own.ID} {
		l, err := s.Use(t.Context(), id, "c1")
		if err != nil {
			t.Fatal(err)
		}
		used = append(used, l)
	}
	intact := func(s *image.Store) {
		t.Helper()
		for _, id := range []string{own.ID, volume.ID} {
			if err := s.Remove(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range used {
			read(t, l, "base/name")
		}
	}
	intact(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	if err := s.SyncUses(t.Context(), map[string][]string{"c1": {own.ID, volume.ID}}); err != nil {
		t.Fatal(err)
	}
	intact(s)
	if err := s.Release(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	pull(t, s, reg.Push("b:1", simple(t, "z")))
	if err := s.Remove(t.Context(), reg.Host()+"/b:1"); err != nil { // collects
		t.Fatal(err)
	}
	wantClean(t, cfg.Root)
}

// A pull after a removal unpacks to other folders than before.
func TestUseAfterPullingAgain(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	ref := reg.Push("a:1", simple(t, "x"))
	for range 3 {
		pull(t, s, ref)
		l, err := s.Use(t.Context(), ref, "c1")
		if err != nil {
			t.Fatal(err)
		}
		read(t, l, "base/name")
		read(t, l, "top/name")
		if err := errors.Join(s.Release(t.Context(), "c1"), s.Remove(t.Context(), ref)); err != nil {
			t.Fatal(err)
		}
	}
}

// Until the daemon knows its containers, nothing may be taken from disk.
func TestNothingCollectedBeforeSync(t *testing.T) {
	reg := newRegistry(t)
	cfg := config(t)
	s := openSynced(t, cfg)
	img := pull(t, s, reg.Push("a:1", simple(t, "x")))
	l, err := s.Use(t.Context(), img.ID, "c1")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	if err := s.Remove(t.Context(), img.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.Host() + "/no:1"}); err == nil {
		t.Fatal("pulled what is not there")
	}
	read(t, l, "base/name")
	if err := s.SyncUses(t.Context(), map[string][]string{}); err != nil {
		t.Fatal(err)
	}
	wantClean(t, cfg.Root)
}

// Requests are served while the daemon still reads its records: what they said
// about images is newer than the records.
func TestSyncUsesKeepsNewer(t *testing.T) {
	reg := newRegistry(t)
	cfg := config(t)
	s := open(t, cfg)
	gone := pull(t, s, reg.Push("gone:1", simple(t, "x")))
	used := pull(t, s, reg.Push("used:1", simple(t, "y")))
	l, err := s.Use(t.Context(), used.ID, "new")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Release(t.Context(), "old"); err != nil {
		t.Fatal(err)
	}
	if err := s.SyncUses(t.Context(), map[string][]string{"old": {gone.ID}}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{gone.ID, used.ID} {
		if err := s.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	read(t, l, "base/name")
	if left := leftovers(t, cfg.Root); len(left) != 3 { // a configuration and two layers
		t.Errorf("left: %v", left)
	}
}

func TestImagesSurviveRestart(t *testing.T) {
	reg := newRegistry(t)
	cfg := config(t)
	s := openSynced(t, cfg)
	x := simple(t, "x")
	before := pull(t, s, reg.Push("a:1", x))
	pull(t, s, reg.Push("mine:1", x))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openSynced(t, cfg)
	img, err := s.Get(t.Context(), reg.Host()+"/mine:1")
	if err != nil || img.ID != before.ID || len(img.RepoTags) != 2 || img.Size != before.Size {
		t.Errorf("%+v %v", img, err)
	}
	if _, err := s.Use(t.Context(), img.ID, "c1"); err != nil {
		t.Error(err)
	}
}

func TestList(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	a := pull(t, s, reg.Push("a:1", simple(t, "x")))
	b := pull(t, s, reg.Push("b:1", simple(t, "y")))
	for filter, want := range map[string][]string{
		"": {a.ID, b.ID}, reg.Host() + "/a:1": {a.ID}, b.ID: {b.ID}, b.ID[7:]: {b.ID}, b.ID[7:19]: {b.ID},
		a.RepoDigests[0]: {a.ID}, "nothing:1": {}, "sha256:" + strings.Repeat("0", 64): {},
	} {
		imgs, err := s.List(t.Context(), image.Filter{Ref: filter})
		got := []string{}
		for _, i := range imgs {
			got = append(got, i.ID)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v %v", filter, got, err)
		}
	}
	if _, err := s.Get(t.Context(), "Bad Name"); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("%v", err)
	}
}

// Use and removal at the same time: either the container gets its layers and
// keeps them, or it is told that the image is gone.
func TestUseAgainstRemove(t *testing.T) {
	reg := newRegistry(t)
	cfg := config(t)
	s := openSynced(t, cfg)
	ref := reg.Push("a:1", simple(t, "x"))
	for i := range 30 {
		pull(t, s, ref)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.Remove(context.Background(), ref); err != nil {
				t.Error(err)
			}
		})
		if i%2 == 0 {
			runtime.Gosched()
		}
		l, err := s.Use(t.Context(), ref, "c1")
		wg.Wait()
		switch {
		case err == nil:
			read(t, l, "base/name")
			read(t, l, "top/name")
		case !errors.Is(err, errdefs.ErrNotFound):
			t.Error(err)
		}
		if err := s.Release(t.Context(), "c1"); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenModes(t *testing.T) {
	cfg := config(t)
	openSynced(t, cfg)
	for _, dir := range []string{"", "content", "snapshots"} {
		info, err := os.Stat(filepath.Join(cfg.Root, dir))
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%q: %v %v", dir, info.Mode(), err)
		}
	}
	if _, err := image.Open(t.Context(), image.Config{Root: "relative"}); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("%v", err)
	}
}

func TestOpenTwice(t *testing.T) {
	cfg := config(t)
	openSynced(t, cfg)
	_, err := image.Open(t.Context(), cfg)
	if !errors.Is(err, errdefs.ErrUnavailable) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("%v", err)
	}
}

// A damaged database is said to be one, and is left for its owner to look at.
func TestOpenDamaged(t *testing.T) {
	for _, file := range []string{"metadata.db", "snapshots/metadata.db"} {
		for name, damage := range map[string]func([]byte) []byte{
			"cut short":    func(b []byte) []byte { return b[:8192] }, // what is in the second half may be of no use
			"first page":   func(b []byte) []byte { copy(b, make([]byte, 8192)); return b },
			"zeroed pages": func(b []byte) []byte { copy(b[16384:], make([]byte, len(b)-16384)); return b },
			"text":         func([]byte) []byte { return []byte("hello") },
		} {
			t.Run(file+" "+name, func(t *testing.T) {
				reg := newRegistry(t)
				cfg := config(t)
				s := openSynced(t, cfg)
				pull(t, s, reg.Push("a:1", simple(t, "x")))
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(cfg.Root, file)
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				b = damage(b)
				writeFile(t, path, string(b), 0o600)
				s, err = image.Open(t.Context(), cfg)
				if err == nil {
					imgs, _ := s.List(t.Context(), image.Filter{})
					_ = s.Close()
					t.Fatalf("opened, with %d images", len(imgs))
				}
				if !errors.Is(err, errdefs.ErrInternal) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "move the folder") {
					t.Errorf("%v", err)
				}
				if after, err := os.ReadFile(path); err != nil || string(after) != string(b) {
					t.Errorf("the file was changed: %v", err)
				}
			})
		}
	}
}

// An image with a lost part is left out, can be removed, and a pull repairs it.
func TestBrokenImage(t *testing.T) {
	for name, damage := range map[string]func(string) error{
		"lost": os.Remove,
		"cut":  func(path string) error { return os.Truncate(path, 10) },
	} {
		for _, repair := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				reg := newRegistry(t)
				cfg := config(t)
				s := openSynced(t, cfg)
				built := simple(t, "x")
				ref := reg.Push("a:1", built)
				pull(t, s, ref)
				good := pull(t, s, reg.Push("b:1", simple(t, "y")))
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if err := damage(filepath.Join(cfg.Root, "content/blobs/sha256", strings.TrimPrefix(built.ID, "sha256:"))); err != nil {
					t.Fatal(err)
				}
				s = openSynced(t, cfg)
				if imgs, err := s.List(t.Context(), image.Filter{}); err != nil || len(imgs) != 1 || imgs[0].ID != good.ID {
					t.Errorf("list: %v %v", imgs, err)
				}
				if repair {
					pull(t, s, ref)
					return
				}
				if err := s.Remove(t.Context(), ref); err != nil {
					t.Error(err)
				}
				if err := s.Remove(t.Context(), good.ID); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// What a killed daemon had half-way is gone after the next start, and what was
// whole is still there.
func TestCrashDuringPull(t *testing.T) {
	reg := newRegistry(t)
	cfg := config(t)
	s := openSynced(t, cfg)
	good := pull(t, s, reg.Push("good:1", simple(t, "x")))
	big := build(t, images.Spec{Layers: []images.Layer{file("small", ""), {Files: map[string]images.File{"big": {Body: noise(1 << 20)}}}}})
	ref := reg.Push("big:1", big)
	reg.Inject(images.Fault{Path: big.Layers()[1].Digest.Encoded(), Stall: 1 << 19})
	ctx, giveUp := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = s.Pull(ctx, image.PullRequest{Ref: ref}) // ends with giveUp
	}()
	deadline := time.Now().Add(5 * time.Second)
	for len(leftovers(t, cfg.Root)) < 4+2+3+1+2 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // the last of them may still be moving
	crashed := cfg
	crashed.Root = filepath.Join(t.TempDir(), "crashed")
	if err := os.CopyFS(crashed.Root, os.DirFS(cfg.Root)); err != nil { // what a kill would leave
		t.Fatal(err)
	}
	giveUp()
	<-done
	for _, stray := range []string{
		"content/ingest/feed/data", "content/incoming/123", "content/blobs/sha256/" + strings.Repeat("f", 64), "snapshots/snapshots/99/fs/x", "snapshots/snapshots/new-123/fs/x",
	} {
		writeFile(t, filepath.Join(crashed.Root, stray), "", 0o600)
	}
	before := len(leftovers(t, crashed.Root))
	s = openSynced(t, crashed)
	if imgs, err := s.List(t.Context(), image.Filter{}); err != nil || len(imgs) != 1 || imgs[0].ID != good.ID {
		t.Errorf("list: %v %v", imgs, err)
	}
	if after := leftovers(t, crashed.Root); len(after) != 4+2 || before == len(after) {
		t.Errorf("before %d, after %v", before, after)
	}
	reg.Heal()
	pull(t, s, ref)
}

// A kill between the snapshotter's commit and that of the metadata leaves a
// layer that only the snapshotter knows.
func TestStrayLayer(t *testing.T) {
	reg := newRegistry(t)
	cfg := config(t)
	s := openSynced(t, cfg)
	pull(t, s, reg.Push("a:1", simple(t, "x")))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := leftovers(t, cfg.Root)
	stray, err := overlay.NewSnapshotter(filepath.Join(cfg.Root, "snapshots"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = stray.Prepare(t.Context(), "fairlead/77/stray", "")
	if err := errors.Join(err, stray.Close()); err != nil {
		t.Fatal(err)
	}
	openSynced(t, cfg)
	if after := leftovers(t, cfg.Root); !slices.Equal(before, after) {
		t.Errorf("before %v, after %v", before, after)
	}
}
