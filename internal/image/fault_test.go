package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image"
	"fairlead.run/test/images"
)

// noise does not compress, so that parts of a blob are parts of the layer.
func noise(n int) []byte {
	out := make([]byte, 0, n+32)
	sum := digest.FromString("noise")
	for i := uint64(0); len(out) < n; i++ {
		sum = digest.FromBytes(binary.LittleEndian.AppendUint64([]byte(sum), i))
		out = append(out, sum.Encoded()...)
	}
	return out[:n]
}

// Whatever a registry does: a clear error of the right kind, and nothing left.
func TestPullFaults(t *testing.T) {
	big := images.Layer{Files: map[string]images.File{"big": {Body: noise(1 << 20)}}}
	for name, tc := range map[string]struct {
		faults []images.Fault
		lose   bool
		kind   error
		text   []string
	}{
		"no such image":     {[]images.Fault{{Path: "/manifests/", Status: 404}}, false, errdefs.ErrNotFound, []string{"not found on", "check the name"}},
		"forbidden":         {[]images.Fault{{Path: "/manifests/", Status: 403}}, false, errdefs.ErrPrecondition, []string{"refuses access", "credentials"}},
		"unauthorised":      {[]images.Fault{{Path: "/manifests/", Status: 401}}, false, errdefs.ErrPrecondition, []string{"refuses access"}},
		"too many requests": {[]images.Fault{{Path: "/manifests/", Status: 429}}, false, errdefs.ErrUnavailable, []string{"429"}},
		"out of order":      {[]images.Fault{{Path: "/manifests/", Status: 503}}, false, errdefs.ErrUnavailable, []string{"out of order", "503"}},
		"blob out of order": {[]images.Fault{{Path: "/blobs/", Status: 500}}, false, errdefs.ErrUnavailable, []string{"500"}},
		"blob lost":         {nil, true, errdefs.ErrNotFound, []string{"not a part that it names"}},
		"corrupt blob":      {[]images.Fault{{Path: "/blobs/", Corrupt: true}}, false, errdefs.ErrUnavailable, []string{"other bytes than the digest"}},
		"corrupt manifest":  {[]images.Fault{{Method: "GET", Path: "/manifests/", Corrupt: true}}, false, errdefs.ErrUnavailable, []string{"other bytes than the digest"}},
		"hangs up":          {[]images.Fault{{Path: "/blobs/", Cut: 1000, NoRange: true}}, false, errdefs.ErrUnavailable, []string{"broke off"}},
		"never answers":     {[]images.Fault{{Path: "/manifests/", Delay: time.Minute}}, false, errdefs.ErrUnavailable, []string{"no data arrived", "hangs at the image's manifest"}},
		"stalls":            {[]images.Fault{{Path: "/blobs/", Stall: 1000}}, false, errdefs.ErrUnavailable, []string{"no data arrived", "hangs at layer sha256:"}},
	} {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t)
			cfg := config(t)
			cfg.StallTimeout = time.Second
			s := openSynced(t, cfg)
			built := build(t, images.Spec{Layers: []images.Layer{file("small", "x"), big}})
			ref := reg.Push("team/app:1", built)
			reg.Inject(tc.faults...)
			if tc.lose {
				reg.DropBlob("team/app", built.Layers()[1].Digest)
			}
			_, err := s.Pull(t.Context(), image.PullRequest{Ref: ref})
			if !errors.Is(err, tc.kind) {
				t.Errorf("kind: %v", err)
			}
			for _, want := range append(tc.text, ref, reg.Host()) {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q: %v", want, err)
				}
			}
			if err != nil && (strings.Contains(err.Error(), "\n") || len(err.Error()) > 500) {
				t.Errorf("not for people: %v", err)
			}
			wantClean(t, cfg.Root)
			reg.Heal()
			reg.Push("team/app:1", built)
			pull(t, s, ref) // the failure must not stand in the way of the next try
		})
	}
}

// A connection that breaks once is taken up again where it broke.
func TestPullResumes(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	built := build(t, images.Spec{Layers: []images.Layer{{Files: map[string]images.File{"big": {Body: noise(1 << 20)}}}}})
	ref := reg.Push("app:1", built)
	reg.Inject(images.Fault{Path: built.Layers()[0].Digest.Encoded(), Cut: 1 << 19, Times: 1})
	pull(t, s, ref)
}

func TestPullBadImages(t *testing.T) {
	var cut bytes.Buffer
	w := tar.NewWriter(&cut)
	if err := w.WriteHeader(&tar.Header{Name: "f", Size: 5000, Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	gz := build(t, images.Spec{Layers: []images.Layer{{Files: map[string]images.File{"f": {Body: noise(5000)}}}}})
	whole := gz.Blobs[gz.Layers()[0].Digest]
	for name, tc := range map[string]struct {
		layer images.Layer
		diff  []digest.Digest
		kind  error
		text  string
	}{
		"bad gzip":       {layer: images.Layer{Blob: append([]byte{0x1f, 0x8b, 8}, noise(100)...)}, kind: errdefs.ErrInvalidArgument, text: "not a sound archive"},
		"gzip cut short": {layer: images.Layer{Blob: whole[:len(whole)/2]}, kind: errdefs.ErrInvalidArgument, text: "not a sound archive"},
		"tar cut short":  {layer: images.Layer{Tarball: cut.Bytes()}, kind: errdefs.ErrInvalidArgument, text: "not a sound archive"},
		"no tar":         {layer: images.Layer{Tarball: noise(5000)}, kind: errdefs.ErrInvalidArgument, text: "not a sound archive"},
		"wrong diff id":  {layer: file("a", "b"), diff: []digest.Digest{digest.FromString("x")}, kind: errdefs.ErrInvalidArgument, text: "not those that its configuration names"},
		"diff id short":  {layer: file("a", "b"), diff: []digest.Digest{}, kind: errdefs.ErrInvalidArgument, text: "not those that its configuration names"},
		"encrypted":      {layer: images.Layer{MediaType: "application/vnd.oci.image.layer.v1.tar+gzip+encrypted"}, kind: errdefs.ErrUnimplemented, text: "encrypted"},
		"unknown layer":  {layer: images.Layer{MediaType: "application/x-cake"}, kind: errdefs.ErrUnimplemented, text: "application/x-cake"},
	} {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t)
			cfg := config(t)
			s := openSynced(t, cfg)
			ref := reg.Push("bad:1", build(t, images.Spec{Layers: []images.Layer{tc.layer, file("other", "")}, DiffIDs: tc.diff}))
			if len(tc.diff) == 1 {
				ref = reg.Push("bad:1", build(t, images.Spec{Layers: []images.Layer{tc.layer}, DiffIDs: tc.diff}))
			}
			_, err := s.Pull(t.Context(), image.PullRequest{Ref: ref})
			if !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.text) || !strings.Contains(err.Error(), ref) {
				t.Errorf("%v", err)
			}
			wantClean(t, cfg.Root)
		})
	}
}

func TestPullBadManifests(t *testing.T) {
	schema1 := `{"schemaVersion":1,"name":"x","fsLayers":[{"blobSum":"sha256:00"}]}`
	for name, tc := range map[string]struct {
		mediaType, body string
		kind            error
		text            string
	}{
		"schema 1":           {"application/vnd.docker.distribution.manifest.v1+prettyjws", schema1, errdefs.ErrUnimplemented, "schema 1"},
		"schema 1 unsigned":  {"application/vnd.docker.distribution.manifest.v1+json", schema1, errdefs.ErrUnimplemented, "schema 1"},
		"schema 1 in hiding": {"application/vnd.docker.distribution.manifest.v2+json", schema1, errdefs.ErrUnimplemented, "schema 1"},
		"not JSON":           {"application/vnd.oci.image.manifest.v1+json", "hello", errdefs.ErrInvalidArgument, "not JSON"},
		"artifact": {
			"application/vnd.oci.image.manifest.v1+json",
			`{"schemaVersion":2,"config":{"mediaType":"application/vnd.cncf.helm.config.v1+json","digest":"` + digest.FromString("x").String() + `","size":1},"layers":[]}`,
			errdefs.ErrInvalidArgument, "helm",
		},
		"index for manifest": {"application/vnd.oci.image.manifest.v1+json", `{"schemaVersion":2,"manifests":[]}`, errdefs.ErrInvalidArgument, "not what its type"},
		"empty index":        {"application/vnd.oci.image.index.v1+json", `{"schemaVersion":2,"manifests":[]}`, errdefs.ErrNotFound, "names no image"},
		"unknown type":       {"application/x-cake", `{}`, errdefs.ErrInvalidArgument, "application/x-cake"},
		"bad digest": {
			"application/vnd.oci.image.manifest.v1+json",
			`{"schemaVersion":2,"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:../../x","size":1},"layers":[]}`,
			errdefs.ErrInvalidArgument, "digest",
		},
		"huge config": {
			"application/vnd.oci.image.manifest.v1+json",
			`{"schemaVersion":2,"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"` + digest.FromString("x").String() + `","size":99999999999},"layers":[]}`,
			errdefs.ErrInvalidArgument, "the limit is",
		},
	} {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t)
			cfg := config(t)
			s := openSynced(t, cfg)
			ref := reg.PushManifest("bad:1", tc.mediaType, []byte(tc.body))
			_, err := s.Pull(t.Context(), image.PullRequest{Ref: ref})
			if !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.text) || !strings.Contains(err.Error(), ref) {
				t.Errorf("%v", err)
			}
			wantClean(t, cfg.Root)
		})
	}
}

func TestPullLimits(t *testing.T) {
	many := map[string]images.File{}
	for i := range 50 {
		many["d/"+strings.Repeat("x", i+1)] = images.File{}
	}
	for name, tc := range map[string]struct {
		limits image.Limits
		layer  images.Layer
		text   string
	}{
		"entries":          {image.Limits{LayerEntries: 40}, images.Layer{Files: many}, "more than 40 files, folders and links"},
		"bytes":            {image.Limits{LayerBytes: 1 << 20}, images.Layer{Files: map[string]images.File{"zeros": {Body: make([]byte, 4<<20)}}}, "more than 1048576 bytes"},
		"compressed bytes": {image.Limits{LayerBytes: 1 << 20}, images.Layer{Files: map[string]images.File{"noise": {Body: noise(2 << 20)}}, Compression: images.Plain}, "the limit is 1048576"},
		"sparse file":      {image.Limits{LayerBytes: 1 << 20}, images.Layer{Tarball: sparse(t, "etc/passwd", 4<<30)}, "more than 1048576 bytes"},
		"sparse files":     {image.Limits{LayerBytes: 1 << 20}, images.Layer{Tarball: slices.Concat(sparse(t, "a", 1<<19), sparse(t, "b", 1<<19), sparse(t, "c", 1))}, "more than 1048576 bytes"},
		"sparse, no limit": {image.Limits{LayerBytes: math.MaxInt64}, images.Layer{Tarball: sparse(t, "a", math.MaxInt64)}, "can spare"},
	} {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t)
			cfg := config(t)
			cfg.Limits = tc.limits
			s := openSynced(t, cfg)
			built := build(t, images.Spec{Layers: []images.Layer{tc.layer}})
			ref := reg.Push("bomb:1", built)
			_, err := s.Pull(t.Context(), image.PullRequest{Ref: ref})
			for _, want := range []string{tc.text, built.Layers()[0].Digest.String(), ref} {
				if !errors.Is(err, errdefs.ErrExhausted) || !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q: %v", want, err)
				}
			}
			wantClean(t, cfg.Root)
		})
	}
}

func TestPullBadNames(t *testing.T) {
	s := openSynced(t, config(t))
	for _, ref := range []string{"", "UPPER", "a b", "a:b:c", "../x", "http://x/y", "sha256:" + strings.Repeat("a", 64), "x@sha256:12"} {
		if _, err := s.Pull(t.Context(), image.PullRequest{Ref: ref}); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%q: %v", ref, err)
		}
	}
	if _, err := s.Pull(t.Context(), image.PullRequest{Ref: "x", Platform: "a/b/c/d/e"}); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("bad platform: %v", err)
	}
}

func TestPullUnreachable(t *testing.T) {
	reg := images.NewRegistry()
	host := reg.Host()
	reg.Close()
	s := openSynced(t, config(t))
	_, err := s.Pull(t.Context(), image.PullRequest{Ref: host + "/app:1"})
	if !errors.Is(err, errdefs.ErrUnavailable) || !strings.Contains(err.Error(), "cannot reach "+host) {
		t.Errorf("%v", err)
	}
}

// Several callers of one pull share it; one that gives up leaves it to the
// others, and the last one ends it.
func TestPullJoins(t *testing.T) {
	reg := newRegistry(t)
	cfg := config(t)
	s := openSynced(t, cfg)
	built := simple(t, "x")
	ref := reg.Push("app:1", built)
	reg.Inject(images.Fault{Path: "/blobs/", Delay: 300 * time.Millisecond})
	impatient, giveUp := context.WithCancel(t.Context())
	results := make(chan error, 3)
	for i := range 3 {
		ctx := t.Context()
		if i == 0 {
			ctx = impatient
		}
		go func() {
			_, err := s.Pull(ctx, image.PullRequest{Ref: ref})
			results <- err
		}()
	}
	time.Sleep(100 * time.Millisecond)
	giveUp()
	var cancelled, good int
	for range 3 {
		switch err := <-results; {
		case err == nil:
			good++
		case errors.Is(err, context.Canceled):
			cancelled++
		default:
			t.Error(err)
		}
	}
	if cancelled != 1 || good != 2 {
		t.Errorf("%d cancelled, %d good", cancelled, good)
	}
	blobs := map[string]int{}
	for _, r := range reg.Requests() {
		if strings.HasPrefix(r, "GET") && strings.Contains(r, "/blobs/") {
			blobs[r]++
		}
	}
	for r, n := range blobs {
		if n > 1 {
			t.Errorf("%d times %s", n, r)
		}
	}
}

func TestPullGivenUp(t *testing.T) {
	reg := newRegistry(t)
	cfg := config(t)
	s := openSynced(t, cfg)
	ref := reg.Push("app:1", simple(t, "x"))
	reg.Inject(images.Fault{Path: "/blobs/", Stall: 10})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Pull(ctx, image.PullRequest{Ref: ref}); !errors.Is(err, errdefs.ErrDeadline) {
		t.Errorf("%v", err)
	}
	reg.Heal()
	pull(t, s, ref) // at once, while the one before may still be cleaning up
	if err := s.Remove(t.Context(), ref); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil { // waits for whatever still runs
		t.Error(err)
	}
	wantClean(t, cfg.Root)
}

func TestCloseEndsPulls(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	ref := reg.Push("app:1", simple(t, "x"))
	reg.Inject(images.Fault{Path: "/blobs/", Stall: 10})
	done := make(chan error)
	go func() {
		_, err := s.Pull(context.Background(), image.PullRequest{Ref: ref})
		done <- err
	}()
	time.Sleep(200 * time.Millisecond)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, errdefs.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if _, err := s.Pull(t.Context(), image.PullRequest{Ref: ref}); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Errorf("pull from a closed store: %v", err)
	}
}

// Two pulls that share layers at the same time must not trip over each other.
func TestPullSharedLayersTogether(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	base := []images.Layer{{Files: map[string]images.File{"big": {Body: noise(1 << 19)}}}, file("second", "2")}
	done := make(chan error)
	for i := range 6 {
		mark := strings.Repeat("m", i+1)
		ref := reg.Push("app:"+mark, build(t, images.Spec{Layers: append(base[:2:2], file("top", mark))}))
		go func() {
			_, err := s.Pull(t.Context(), image.PullRequest{Ref: ref})
			done <- err
		}()
	}
	for range 6 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	n := 0
	for _, r := range reg.Requests() {
		if strings.HasPrefix(r, "GET") && strings.Contains(r, "/blobs/") {
			n++
		}
	}
	if n != 2+6+6 { // shared layers, tops, configurations
		t.Errorf("%d blobs were fetched, want 14", n)
	}
}

// When one layer turns out to be broken while others are on their way, nothing
// of those may arrive after the pull has cleaned up.
func TestPullEndsItsDownloads(t *testing.T) {
	reg := newRegistry(t)
	cfg := config(t)
	cfg.MaxConcurrentDownloads = 3
	s := openSynced(t, cfg)
	layers := []images.Layer{{Blob: append([]byte{0x1f, 0x8b, 8}, noise(100)...)}}
	for i := range 12 {
		layers = append(layers, images.Layer{Files: map[string]images.File{strings.Repeat("f", i+1): {Body: noise(1 << 20)}}, Compression: images.Plain})
	}
	ref := reg.Push("bad:1", build(t, images.Spec{Layers: layers}))
	for range 4 {
		if _, err := s.Pull(t.Context(), image.PullRequest{Ref: ref}); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Fatal(err)
		}
		wantClean(t, cfg.Root)
	}
	time.Sleep(50 * time.Millisecond)
	wantClean(t, cfg.Root)
}

// A pull that is to stay goes on without its caller, who comes back to it: the
// registry is asked for each blob once.
func TestPullStays(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	ref := reg.Push("app:1", simple(t, "x"))
	reg.Inject(images.Fault{Path: "/blobs/", Delay: 300 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for len(s.Operations()) == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := s.Pull(ctx, image.PullRequest{Ref: ref, Stay: true}); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "still at stage") {
		t.Fatalf("%v", err)
	}
	if ops := s.Operations(); len(ops) != 1 || ops[0].Verb != "pull" || ops[0].Name != ref || ops[0].Waiting != 0 {
		t.Fatalf("in flight: %+v", ops)
	}
	pull(t, s, ref)
	blobs := map[string]int{}
	for _, r := range reg.Requests() {
		if strings.HasPrefix(r, "GET") && strings.Contains(r, "/blobs/") {
			blobs[r]++
		}
	}
	for r, n := range blobs {
		if n > 1 {
			t.Errorf("%d times %s", n, r)
		}
	}
	if ops := s.Operations(); len(ops) != 0 {
		t.Errorf("in flight at the end: %+v", ops)
	}
}
