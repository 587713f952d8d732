package rootfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// put writes a file and the folders above it.
func put(t *testing.T, path, body string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, path, body)
}

func TestUsage(t *testing.T) {
	dir := t.TempDir()
	count := func(want int64) (bytes int64) {
		t.Helper()
		bytes, inodes, err := usage(t.Context(), dir)
		if err != nil || inodes != want {
			t.Fatalf("%d inodes, %d bytes, %v; want %d", inodes, bytes, err, want)
		}
		return bytes
	}
	empty := count(1)
	put(t, filepath.Join(dir, "a/b/file"), strings.Repeat("x", 1<<20))
	one := count(4)
	if one < empty+1<<20 {
		t.Errorf("%d bytes, and %d before", one, empty)
	}
	// Hard links once, whatever they are.
	if err := os.Link(filepath.Join(dir, "a/b/file"), filepath.Join(dir, "a/again")); err != nil {
		t.Fatal(err)
	}
	if got := count(4); got != one {
		t.Errorf("%d bytes with a second name, %d with one", got, one)
	}
	// Links lead nowhere.
	elsewhere := t.TempDir()
	write(t, filepath.Join(elsewhere, "large"), strings.Repeat("x", 1<<20))
	if err := os.Symlink(elsewhere, filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if got := count(5); got >= one+1<<20 {
		t.Errorf("%d bytes: a link was followed", got)
	}
	// More than a folder is read at once, and a device of the container's.
	for i := range 2*folderPiece + 10 {
		put(t, filepath.Join(dir, "many", fmt.Sprint(i)), "")
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	count(5 + 1 + 2*folderPiece + 10 + 1)
}

// A folder that is exchanged for a link while it waits to be read.
func TestUsageOfAFolderThatBecomesALink(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	put(t, filepath.Join(elsewhere, "b/large"), "x")
	for _, l := range []string{"a", "sub/a"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, l)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(elsewhere, filepath.Join(dir, l)); err != nil {
			t.Fatal(err)
		}
	}
	top, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(top) }()
	for _, folder := range []string{"a", "a/b", "sub/a/b", "gone", "../" + filepath.Base(elsewhere)} {
		w := walker{links: map[uint64]struct{}{}}
		if err := w.read(t.Context(), top, folder); err != nil || w.inodes != 0 {
			t.Errorf("%s: %d inodes outside were counted, %v", folder, w.inodes, err)
		}
	}
}

// Volumes count with the layer, and one that is not there is none.
func TestUsageOfVolumes(t *testing.T) {
	layer, volumes := t.TempDir(), t.TempDir()
	put(t, filepath.Join(layer, "file"), "x")
	alone, inodes, err := usage(t.Context(), layer, filepath.Join(volumes, "none"))
	if err != nil || inodes != 2 {
		t.Fatalf("%d inodes, %v", inodes, err)
	}
	put(t, filepath.Join(volumes, "one/file"), strings.Repeat("x", 1<<20))
	if both, inodes, err := usage(t.Context(), layer, volumes); err != nil || inodes != 5 || both < alone+1<<20 {
		t.Errorf("%d bytes in %d inodes, %v; the layer alone has %d", both, inodes, err, alone)
	}
}

func TestUsageOfNothing(t *testing.T) {
	if _, _, err := usage(t.Context(), filepath.Join(t.TempDir(), "missing")); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("error %v, want not found", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := usage(ctx, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the caller", err)
	}
}

// A tree that is deeper than a path can be is counted as far as there is a path.
func TestUsageOfADeepTree(t *testing.T) {
	dir := t.TempDir()
	at, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("d", 200)
	for range 30 {
		if err := unix.Mkdirat(at, name, 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(at)
		at = next
	}
	_ = unix.Close(at)
	if _, inodes, err := usage(t.Context(), dir); err != nil || inodes < 20 || inodes > 31 {
		t.Errorf("%d inodes, %v", inodes, err)
	}
}
