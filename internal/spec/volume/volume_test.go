package volume

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func root(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files to other users")
	}
	return t.TempDir()
}

func TestMakeCopiesWhatTheImageHas(t *testing.T) {
	r := root(t)
	data := filepath.Join(r, "data")
	must(t, os.MkdirAll(filepath.Join(data, "deep/er"), 0o755))
	must(t, os.WriteFile(filepath.Join(data, "deep/file"), []byte("content"), 0o644))
	must(t, os.Chown(filepath.Join(data, "deep/file"), 7, 8))
	must(t, os.Chmod(filepath.Join(data, "deep/file"), 0o755|fs.ModeSetuid))
	must(t, os.Symlink("/etc/shadow", filepath.Join(data, "link")))
	must(t, unix.Mkfifo(filepath.Join(data, "pipe"), 0o640))
	must(t, unix.Lsetxattr(filepath.Join(data, "deep/file"), "user.note", []byte("kept"), 0))
	must(t, os.Chown(data, 5, 6))
	must(t, os.Chmod(data, 0o2770|fs.ModeSetgid))
	old := time.Unix(1000, 0)
	must(t, os.Chtimes(data, old, old))

	dir := filepath.Join(t.TempDir(), "volumes", "v")
	must(t, Make(t.Context(), Image{Root: r, Name: "/data"}, dir))
	got, err := os.ReadFile(filepath.Join(dir, "deep/file"))
	if err != nil || string(got) != "content" {
		t.Errorf("content %q, %v", got, err)
	}
	info, err := os.Lstat(filepath.Join(dir, "deep/file"))
	must(t, err)
	if st := info.Sys().(*syscall.Stat_t); st.Uid != 7 || st.Gid != 8 || info.Mode() != 0o755|fs.ModeSetuid {
		t.Errorf("file is %d:%d %s", st.Uid, st.Gid, info.Mode())
	}
	note := make([]byte, 10)
	if n, err := unix.Lgetxattr(filepath.Join(dir, "deep/file"), "user.note", note); err != nil || string(note[:n]) != "kept" {
		t.Errorf("extended attribute %q, %v", note, err)
	}
	if to, err := os.Readlink(filepath.Join(dir, "link")); err != nil || to != "/etc/shadow" {
		t.Errorf("the link became %q, %v", to, err)
	}
	if info, err := os.Lstat(filepath.Join(dir, "pipe")); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		t.Errorf("the pipe became %v, %v", info, err)
	}
	info, err = os.Lstat(dir)
	must(t, err)
	if st := info.Sys().(*syscall.Stat_t); st.Uid != 5 || st.Gid != 6 || !info.ModTime().Equal(old) || info.Mode().Perm() != 0o770 {
		t.Errorf("the folder is %d:%d %s of %s", st.Uid, st.Gid, info.Mode(), info.ModTime())
	}

	// Again: what the container has written since stays.
	must(t, os.WriteFile(filepath.Join(dir, "new"), nil, 0o600))
	must(t, Make(t.Context(), Image{Root: r, Name: "/data"}, dir))
	if _, err := os.Lstat(filepath.Join(dir, "new")); err != nil {
		t.Error(err)
	}
}

func TestMakeStaysInTheImage(t *testing.T) {
	r := root(t)
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("x"), 0o600))
	must(t, os.Symlink(outside, filepath.Join(r, "out")))
	must(t, os.WriteFile(filepath.Join(r, "file"), nil, 0o600))

	dir := filepath.Join(t.TempDir(), "v")
	must(t, Make(t.Context(), Image{Root: r, Name: "/out"}, dir))
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("a link out of the image brought %v, %v", list, err)
	}
	if err := Make(t.Context(), Image{Root: r, Name: "/file"}, filepath.Join(t.TempDir(), "v")); err == nil {
		t.Error("a file became a volume")
	}
}

func TestMakeIsAllOrNothing(t *testing.T) {
	r := root(t)
	must(t, os.MkdirAll(filepath.Join(r, "data/a"), 0o755))
	dir := filepath.Join(t.TempDir(), "v")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Make(ctx, Image{Root: r, Name: "/data"}, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled copy: %v", err)
	}
	if list, _ := os.ReadDir(filepath.Dir(dir)); len(list) != 0 {
		t.Errorf("left %v", list)
	}
	// What a crash left does not count, and does not stay.
	must(t, os.MkdirAll(dir+".part/junk", 0o755))
	must(t, Make(t.Context(), Image{Root: r, Name: "/data"}, dir))
	if _, err := os.Lstat(filepath.Join(dir, "a")); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "junk")); err == nil {
		t.Error("the unfinished copy was taken over")
	}
}
