package rootfs

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/containerd/containerd/v2/pkg/archive"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// What a container changes through a real mount is in the layer, as OCI images
// have it.
func TestDiff(t *testing.T) {
	s := newSpec(t, 2)
	write(t, filepath.Join(s.Lower[0], "kept"), "lower")
	for _, dir := range []string{"gone", "renewed"} {
		if err := os.Mkdir(filepath.Join(s.Lower[1], dir), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(s.Lower[1], dir, "old"), "")
	}
	id := pod.NewContainerID()
	r := &Roots{state: t.TempDir(), root: t.TempDir(), unpack: plain}
	s.Dir = r.dir(id)
	if err := Mount(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(s.Target, name) }
	write(t, in("new"), "new")
	write(t, in("all"), "changed")
	err := errors.Join(os.Link(in("new"), in("linked")), os.Symlink("/etc", in("pointer")), unix.Mkfifo(in("fifo"), 0o600),
		os.RemoveAll(in("gone")), os.RemoveAll(in("renewed")), os.Mkdir(in("renewed"), 0o700), os.Remove(in("only-0")),
		unix.Mknod(in("zero"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))))
	if err != nil {
		t.Fatal(err)
	}
	write(t, in("renewed/young"), "")
	to := filepath.Join(t.TempDir(), "diff.tar")
	if err := r.Diff(t.Context(), id, to); err != nil {
		t.Fatal(err)
	}
	got := layer(t, to)
	for name, want := range map[string]string{
		"new": "new", "all": "changed", "pointer": "-> /etc", "fifo": "type 6", "zero": "device 1:5",
		"renewed/": "folder 700", "renewed/young": "", "renewed/.wh..wh..opq": "", ".wh.gone": "", ".wh.only-0": "",
	} {
		// Of two names of a file the first in the archive has the content.
		if name == "new" && got[name] == "link to linked" {
			got[name] = got["linked"]
		}
		if text, ok := got[name]; !ok || text != want {
			t.Errorf("%s: %q %v, want %q", name, text, ok, want)
		}
	}
	for _, name := range []string{"kept", "only-1", "gone", "only-0"} {
		if text, ok := got[name]; ok {
			t.Errorf("%s is there: %q", name, text)
		}
	}
	if err := r.Diff(t.Context(), id, to); !errors.Is(err, os.ErrExist) {
		t.Errorf("onto a file that exists: %v", err)
	}
	if err := r.Diff(t.Context(), "../x", to+"2"); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("%v", err)
	}
	if st, err := os.Stat(to); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
}

// A note instead of the files themselves cannot be put into a layer.
func TestDiffOfARenamedFolder(t *testing.T) {
	needRoot(t)
	id := pod.NewContainerID()
	r := &Roots{state: t.TempDir(), root: t.TempDir(), unpack: plain}
	dir := filepath.Join(r.dir(id), "upper", "moved")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Lsetxattr(dir, "trusted.overlay.redirect", []byte("/old"), 0); err != nil {
		t.Skipf("needs extended attributes on TMPDIR: %v", err)
	}
	if err := r.Diff(t.Context(), id, filepath.Join(t.TempDir(), "d")); !errors.Is(err, errdefs.ErrUnimplemented) {
		t.Errorf("%v", err)
	}
}

func layer(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string]string{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		switch h.Typeflag {
		case tar.TypeReg:
			out[h.Name] = string(body)
		case tar.TypeDir:
			out[h.Name] = "folder " + strconv.FormatInt(h.Mode, 8)
		case tar.TypeSymlink:
			out[h.Name] = "-> " + h.Linkname
		case tar.TypeLink:
			out[h.Name] = "link to " + h.Linkname
		case tar.TypeChar:
			out[h.Name] = "device " + strconv.FormatInt(h.Devmajor, 8) + ":" + strconv.FormatInt(h.Devminor, 8)
		default:
			out[h.Name] = "type " + string(h.Typeflag)
		}
	}
}

// What one container has changed is changed in another, and what was captured of
// its processes is kept until the container goes.
func TestRestore(t *testing.T) {
	s := newSpec(t, 1)
	write(t, filepath.Join(s.Lower[0], "gone"), "")
	id, from := pod.NewContainerID(), t.TempDir()
	r := &Roots{state: t.TempDir(), root: t.TempDir(), unpack: plain}
	s.Dir, s.Target = r.dir(id), r.target(id)
	if err := Mount(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(s.Target, "new"), "new")
	if err := os.Remove(filepath.Join(s.Target, "gone")); err != nil {
		t.Fatal(err)
	}
	err := errors.Join(r.Diff(t.Context(), id, filepath.Join(from, diffFile)), os.Mkdir(filepath.Join(from, imagesDir), 0o700), r.Remove(context.Background(), id))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(from, imagesDir, "pages-1.img"), "memory")
	if err := Mount(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	if err := r.Restore(t.Context(), id, from); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, filepath.Join(s.Target, "new")); got != "new" {
		t.Errorf("%q", got)
	}
	if _, err := os.Stat(filepath.Join(s.Target, "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was deleted is back: %v", err)
	}
	if got := readFile(t, filepath.Join(r.Images(id), "pages-1.img")); got != "memory" {
		t.Errorf("%q", got)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(from, imagesDir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := r.Restore(t.Context(), id, from); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("with a link among what was captured: %v", err)
	}
	if err := r.Remove(context.Background(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(r.Images(id)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its memory stays: %v", err)
	}
}

// plain unpacks whatever it is given.
func plain(ctx context.Context, dir string, tarball io.Reader) error {
	_, err := archive.Apply(ctx, dir, tarball)
	return err
}
