package image_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image"
	"fairlead.run/test/images"
)

// tarball is an archive of these entries in this order. What a header does not
// say is as in a file that anybody may change.
func tarball(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		if h.Mode == 0 {
			h.Mode = 0o777
		}
		body := []byte("hostile")
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(body))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sparse is the entry of a file of that size of which no byte is in the archive,
// without the end of the archive.
func sparse(t *testing.T, name string, size int64) []byte {
	t.Helper()
	var records string
	for _, r := range []string{
		fmt.Sprintf("GNU.sparse.size=%d", size), "GNU.sparse.numblocks=1",
		fmt.Sprintf("GNU.sparse.map=%d,0", size), // one piece, at the end, of nothing
	} {
		length := len(r) + 4 // with two digits, a blank and the end of the line
		records += fmt.Sprintf("%d %s\n", length, r)
	}
	attributes := make([]byte, 512)
	copy(attributes, records)
	return slices.Concat(header(t, "attributes", 'x', len(records)), attributes, header(t, name, tar.TypeReg, 0))
}

// header is a block of an archive, of any type.
func header(t *testing.T, name string, kind byte, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := tar.NewWriter(&b).WriteHeader(&tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg, Size: int64(size), Format: tar.FormatUSTAR}); err != nil {
		t.Fatal(err)
	}
	h := b.Bytes()
	h[156] = kind
	copy(h[148:156], "        ") // the sum counts as blanks
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return h
}

// inventory is everything of a folder and below, with owners, modes and times.
func inventory(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		body := []byte{}
		if d.Type().IsRegular() {
			body, err = os.ReadFile(path)
		}
		fmt.Fprintf(&b, "%s %o %d:%d %d links %d %q\n", path, st.Mode, st.Uid, st.Gid, st.Nlink, st.Mtim.Nano(), body)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Whatever paths and links a layer has, alone or on top of another, nothing
// outside of its folder is made, changed, linked to or removed. It is refused,
// with nothing left of it, or unpacked inside.
func TestLayersStayInside(t *testing.T) {
	outside := t.TempDir()
	writeFile(t, filepath.Join(outside, "victim"), "untouched", 0o600)
	writeFile(t, filepath.Join(outside, "folder", "file"), "untouched", 0o600)
	before := inventory(t, outside)
	up := strings.Repeat("../", 30) + outside[1:]
	reg := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg} }
	dir := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir} }
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink}
	}
	hard := func(name, to string) tar.Header {
		return tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeLink, Uid: 1234, Gid: 1234}
	}
	type layer = []tar.Header
	for name, entries := range map[string]layer{
		"dots":                             {reg(up + "/victim"), reg(up + "/new")},
		"absolute":                         {reg(outside + "/victim"), reg(outside + "/new")},
		"dots in the middle":               {reg("a/b/../../" + up + "/victim")},
		"file through a link":              {link("a", outside), reg("a/victim"), reg("a/new")},
		"file through a link with dots":    {link("a", up), reg("a/victim"), reg("a/new")},
		"file over a link":                 {link("a", outside+"/victim"), reg("a")},
		"folder over a link":               {link("a", outside+"/folder"), dir("a"), reg("a/new")},
		"folder through a link":            {link("a", outside), dir("a/folder"), dir("a/new")},
		"link through a link":              {link("a", outside), link("a/folder", "/etc"), link("a/new", "/etc")},
		"a chain of links":                 {link("a", "b"), link("b", "c/d"), link("c", outside), reg("a/new"), reg("b/victim")},
		"links in a ring":                  {link("a", "b"), link("b", "a"), reg("a/new")},
		"hard link outside":                {hard("a", outside+"/victim")},
		"hard link outside with dots":      {hard("a", up+"/victim"), reg("a")},
		"hard link to a link":              {link("s", outside+"/victim"), hard("a", "s"), reg("a")},
		"hard link to a link, then attrs":  {link("s", outside+"/victim"), hard("a", "s"), hard("b", "a")},
		"hard link through a link":         {link("s", outside), hard("a", "s/victim"), reg("a")},
		"hard link to the root":            {hard("a", "/"), hard("b", up)},
		"hard link at a link":              {reg("f"), link("s", outside), hard("s/new", "f"), hard("s/victim", "f")},
		"whiteout of the parent":           {reg(".wh...")},
		"whiteout of the folder":           {dir("d"), reg("d/.wh..")},
		"whiteout of nothing":              {reg(".wh.")},
		"whiteout through a link":          {link("s", outside), reg("s/.wh.victim"), reg("s/.wh.folder")},
		"whiteout with dots":               {reg(up + "/.wh.victim")},
		"opaque folder through a link":     {link("s", outside), reg("s/.wh..wh..opq")},
		"device through a link":            {link("s", outside), {Name: "s/new", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		"fifo through a link":              {link("s", outside), {Name: "s/victim", Typeflag: tar.TypeFifo}},
		"the root as a link":               {link(".", outside), reg("new")},
		"the root as a link by name":       {link("/", outside), reg("new")},
		"the root as a file":               {reg("."), reg("new")},
		"attributes through a link":        {link("a", outside+"/victim"), {Name: "a", Linkname: outside + "/victim", Typeflag: tar.TypeSymlink, Uid: 9, Gid: 9, PAXRecords: map[string]string{"SCHILY.xattr.user.x": "y"}}},
		"folder that becomes a link, time": {dir("a"), link("a", outside), dir("b")},
	} {
		for _, base := range []string{"", "base"} {
			t.Run(name+" "+base, func(t *testing.T) {
				registry, cfg := newRegistry(t), config(t)
				s := openSynced(t, cfg)
				layers := []images.Layer{{Tarball: tarball(t, entries...)}}
				if base != "" {
					layers = append([]images.Layer{file("d/x", "x")}, layers...)
				}
				built := build(t, images.Spec{Layers: layers})
				_, err := s.Pull(t.Context(), image.PullRequest{Ref: registry.Push("evil:1", built)})
				if after := inventory(t, outside); after != before {
					t.Fatalf("before:\n%safter:\n%s", before, after)
				}
				if err != nil && (!errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), built.Layers()[len(layers)-1].Digest.String())) {
					t.Errorf("refused as %v", err)
				}
				if err := s.Remove(t.Context(), built.ID); err != nil {
					t.Error(err)
				}
				if after := inventory(t, outside); after != before {
					t.Errorf("after the removal:\n%s", after)
				}
				wantClean(t, cfg.Root)
			})
		}
	}
}

// Entries that no file system can have, or that mean nothing, are refused as
// the layer's fault.
func TestBadEntries(t *testing.T) {
	for name, entry := range map[string]tar.Header{
		"a path too long":         {Name: strings.Repeat("a/", 200_000) + "a", Typeflag: tar.TypeReg},
		"a link too long":         {Name: "a", Linkname: strings.Repeat("a", 5000), Typeflag: tar.TypeSymlink},
		"a name too long":         {Name: strings.Repeat("a", 300), Typeflag: tar.TypeReg},
		"a device out of range":   {Name: "a", Typeflag: tar.TypeChar, Devmajor: 1 << 40},
		"an attribute too large":  {Name: "a", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"SCHILY.xattr.user.a": strings.Repeat("a", 1<<17)}},
		"an entry of another age": {Name: "a", Typeflag: 'M'},
	} {
		t.Run(name, func(t *testing.T) {
			reg, cfg := newRegistry(t), config(t)
			s := openSynced(t, cfg)
			built := build(t, images.Spec{Layers: []images.Layer{{Tarball: tarball(t, entry)}}})
			_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.Push("bad:1", built)})
			if !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), built.Layers()[0].Digest.String()) || len(err.Error()) > 1000 {
				t.Errorf("%.1000v", err)
			}
			wantClean(t, cfg.Root)
		})
	}
}

// What a layer says about files that only the node may say is not taken over.
func TestAttributesOfOverlayAreNotTaken(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	evil := tarball(t,
		tar.Header{Name: "d", Typeflag: tar.TypeDir, PAXRecords: map[string]string{
			"SCHILY.xattr.trusted.overlay.redirect": "/etc", "SCHILY.xattr.trusted.overlay.opaque": "y", "SCHILY.xattr.user.kept": "1",
		}})
	img := pull(t, s, reg.Push("evil:1", build(t, images.Spec{Layers: []images.Layer{{Tarball: evil}, {Tarball: evil}}})))
	l, err := s.Use(t.Context(), img.ID, "c1")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range l.Dirs {
		names := make([]byte, 1000)
		n, err := unix.Llistxattr(filepath.Join(dir, "d"), names)
		if err != nil || strings.Contains(string(names[:n]), "overlay") {
			t.Errorf("%q %v", names[:n], err)
		}
	}
}

// An image of very many files arrives and goes like any other.
func TestVeryManyEntries(t *testing.T) {
	const entries = 100_000
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range entries {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("d%d/f%d", i%100, i), Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	reg, cfg := newRegistry(t), config(t)
	s := openSynced(t, cfg)
	img := pull(t, s, reg.Push("many:1", build(t, images.Spec{Layers: []images.Layer{{Tarball: b.Bytes()}}})))
	if u, err := s.Usage(t.Context()); err != nil || u.Inodes < entries {
		t.Errorf("%+v %v", u, err)
	}
	if err := s.Remove(t.Context(), img.ID); err != nil {
		t.Fatal(err)
	}
	wantClean(t, cfg.Root)
}

// documents are what an image is made of, in which a test changes something.
type documents struct {
	manifest ocispec.Manifest
	config   map[string]any
}

// Manifests and configurations that nobody honest writes are refused, and what
// was fetched for them is gone.
func TestHostileDocuments(t *testing.T) {
	huge := strings.Repeat("x", 5<<20)
	inner := func(d *documents) map[string]any { return d.config["config"].(map[string]any) }
	for name, tc := range map[string]struct {
		change func(*documents)
		kind   error
		text   string
	}{
		"negative size of a layer":         {func(d *documents) { d.manifest.Layers[0].Size = -1 }, errdefs.ErrInvalidArgument, "-1 bytes"},
		"smallest size of a layer":         {func(d *documents) { d.manifest.Layers[0].Size = -1 << 63 }, errdefs.ErrInvalidArgument, "bytes"},
		"a layer of nothing":               {func(d *documents) { d.manifest.Layers[0].Size = 0 }, errdefs.ErrInvalidArgument, "0 bytes"},
		"a layer larger than any":          {func(d *documents) { d.manifest.Layers[0].Size = 1<<62 + 1 }, errdefs.ErrExhausted, "the limit is"},
		"a layer larger than the disk":     {func(d *documents) { d.manifest.Layers[0].Size = 1 << 61 }, errdefs.ErrExhausted, "can spare"},
		"a layer shorter than it is":       {func(d *documents) { d.manifest.Layers[0].Size-- }, errdefs.ErrUnavailable, "more bytes than the manifest says"},
		"a layer longer than it is":        {func(d *documents) { d.manifest.Layers[0].Size++ }, errdefs.ErrUnavailable, "broke off"},
		"negative size of a configuration": {func(d *documents) { d.manifest.Config.Size = -1 }, errdefs.ErrInvalidArgument, "the limit is"},
		"digest that is a path":            {func(d *documents) { d.manifest.Layers[0].Digest = "sha256:../../../../etc/passwd" }, errdefs.ErrInvalidArgument, "digest"},
		"digest of no known kind":          {func(d *documents) { d.manifest.Layers[0].Digest = "md5:d41d8cd98f00b204e9800998ecf8427e" }, errdefs.ErrInvalidArgument, "digest"},
		"annotations too large":            {func(d *documents) { d.manifest.Annotations = map[string]string{"a": huge} }, errdefs.ErrInvalidArgument, "the limit is"},
		"more layers than can be mounted": {func(d *documents) {
			for len(d.manifest.Layers) < 501 {
				d.manifest.Layers = append(d.manifest.Layers, d.manifest.Layers[0])
			}
		}, errdefs.ErrInvalidArgument, "501 layers"},
		"diffIDs without layers":         {func(d *documents) { d.manifest.Layers = nil }, errdefs.ErrInvalidArgument, "not those that its configuration names"},
		"layers without diffIDs":         {func(d *documents) { delete(d.config, "rootfs") }, errdefs.ErrInvalidArgument, "not those that its configuration names"},
		"diffIDs that are paths":         {func(d *documents) { d.config["rootfs"].(map[string]any)["diff_ids"] = []string{"../../x", "/etc"} }, errdefs.ErrInvalidArgument, `the diff id "../../x"`},
		"diffIDs in another order":       {func(d *documents) { swap(d.config["rootfs"].(map[string]any)["diff_ids"].([]any)) }, errdefs.ErrInvalidArgument, "not those that its configuration names"},
		"a variable too large":           {func(d *documents) { inner(d)["Env"] = []string{"A=" + huge} }, errdefs.ErrInvalidArgument, "the limit is"},
		"a user too long":                {func(d *documents) { inner(d)["User"] = strings.Repeat("u", 2000) }, errdefs.ErrInvalidArgument, "a user of 2000 bytes"},
		"a configuration too deep":       {func(d *documents) { d.config["deep"] = deep }, errdefs.ErrInvalidArgument, ""},
		"an entrypoint of numbers":       {func(d *documents) { inner(d)["Entrypoint"] = []int{1, 2} }, errdefs.ErrInvalidArgument, "not the JSON document"},
		"a configuration that is a list": {func(d *documents) { d.config = nil }, errdefs.ErrInvalidArgument, ""},
	} {
		t.Run(name, func(t *testing.T) {
			reg, cfg := newRegistry(t), config(t)
			cfg.Limits.LayerBytes = 1 << 62
			s := openSynced(t, cfg)
			ref := pushChanged(t, reg, simple(t, "x"), tc.change)
			_, err := s.Pull(t.Context(), image.PullRequest{Ref: ref})
			if !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.text) || !strings.Contains(err.Error(), ref) || len(err.Error()) > 1000 {
				t.Errorf("%.1000v", err)
			}
			wantClean(t, cfg.Root)
		})
	}
}

// deep stands for lists within lists, which the encoder would refuse.
const deep = "lists within lists"

func swap(list []any) { list[0], list[1] = list[1], list[0] }

// pushChanged pushes the image with other documents.
func pushChanged(t *testing.T, reg *images.Registry, img *images.Image, change func(*documents)) string {
	t.Helper()
	var d documents
	err := json.Unmarshal(img.Blobs[img.Desc.Digest], &d.manifest)
	err = errors.Join(err, json.Unmarshal(img.Blobs[d.manifest.Config.Digest], &d.config))
	if err != nil {
		t.Fatal(err)
	}
	config := d.manifest.Config
	change(&d)
	text, err := json.Marshal(d.config)
	if d.config == nil {
		text = []byte("[]")
	}
	const much = 20_000 // deeper than any reader of JSON goes
	text = bytes.ReplaceAll(text, []byte(`"`+deep+`"`), []byte(strings.Repeat("[", much)+strings.Repeat("]", much)))
	if err != nil {
		t.Fatal(err)
	}
	if d.manifest.Config.Size == config.Size {
		d.manifest.Config.Size = int64(len(text))
	}
	d.manifest.Config.Digest = digest.FromBytes(text)
	img.Blobs[d.manifest.Config.Digest] = text
	reg.Push("app:base", img)
	manifest, err := json.Marshal(d.manifest)
	if err != nil {
		t.Fatal(err)
	}
	return reg.PushManifest("app:1", ocispec.MediaTypeImageManifest, manifest)
}

// Indexes that lead from one to the next end somewhere; one that leads to itself
// would need its own digest, and is seen to be another.
func TestIndexesWithinIndexes(t *testing.T) {
	for name, tc := range map[string]struct {
		depth int
		kind  error
		text  string
	}{
		"some":     {8, nil, ""},
		"too many": {9, errdefs.ErrInvalidArgument, "from one index to the next more than 8 times"},
	} {
		t.Run(name, func(t *testing.T) {
			reg, cfg := newRegistry(t), config(t)
			s := openSynced(t, cfg)
			img := simple(t, "x")
			for range tc.depth {
				next, err := images.Index(img)
				if err != nil {
					t.Fatal(err)
				}
				img = next
			}
			_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.Push("deep:1", img)})
			if tc.kind == nil && err != nil || !errors.Is(err, tc.kind) || err != nil && !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%v", err)
			}
			if err != nil {
				wantClean(t, cfg.Root)
			}
		})
	}
	reg, cfg := newRegistry(t), config(t)
	s := openSynced(t, cfg)
	self := digest.FromString("itself")
	body := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[{"mediaType":%q,"digest":%q,"size":%%d}]}`, ocispec.MediaTypeImageIndex, ocispec.MediaTypeImageIndex, self)
	body = fmt.Sprintf(body, len(body)+1) // three digits in place of two letters
	ref := reg.PushManifest("loop:1", ocispec.MediaTypeImageIndex, []byte(body))
	reg.PushManifest("loop:"+self.String(), ocispec.MediaTypeImageIndex, []byte(body))
	if _, err := s.Pull(t.Context(), image.PullRequest{Ref: ref}); !errors.Is(err, errdefs.ErrUnavailable) || !strings.Contains(err.Error(), "other bytes than the digest") {
		t.Errorf("an index of itself: %v", err)
	}
	wantClean(t, cfg.Root)
}

// A registry that answers without end, where an answer is kept in memory, is not
// listened to for long.
func TestEndlessAnswers(t *testing.T) {
	for name, endless := range map[string]string{"token": "/token", "manifest": "/v2/app/manifests/1"} {
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path == endless && r.Method == http.MethodGet:
					w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
					_, err := fmt.Fprint(w, `{"token":"`)
					for more := bytes.Repeat([]byte("a"), 1<<20); err == nil && sent.Load() < 1<<30; sent.Add(1 << 20) {
						_, err = w.Write(more)
					}
				case name == "token":
					w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="test"`, r.Host))
					w.WriteHeader(http.StatusUnauthorized)
				}
			}))
			defer srv.Close()
			cfg := config(t)
			s := openSynced(t, cfg)
			host := srv.Listener.Addr().String()
			_, err := s.Pull(t.Context(), image.PullRequest{Ref: host + "/app:1"})
			if !errors.Is(err, errdefs.ErrUnavailable) || !strings.Contains(err.Error(), host+" sent an answer of more than") {
				t.Errorf("%v", err)
			}
			if sent.Load() >= 1<<30 {
				t.Error("it was read to its end")
			}
			wantClean(t, cfg.Root)
		})
	}
}
