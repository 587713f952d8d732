package hostpath_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/stage"
)

func TestResolve(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:                                   dir,
		filepath.Join(dir, "link", "file"):    filepath.Join(dir, "file"),
		filepath.Join(dir, "link", "new/one"): filepath.Join(dir, "new/one"),
	} {
		if got, err := hostpath.Resolve(t.Context(), path); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
	if st, err := os.Stat(filepath.Join(dir, "new/one")); err != nil || !st.IsDir() {
		t.Errorf("a missing path is no folder: %v, %v", st, err)
	}
	if _, err := hostpath.Resolve(t.Context(), filepath.Join(dir, "file", "below")); err == nil {
		t.Error("no error for a path below a file")
	}
}

// A look that hangs is left, and holds one thread however often it is asked
// for; other paths are looked at meanwhile, and it when it is free again.
func TestLookIsLeft(t *testing.T) {
	hang, begun := make(chan struct{}), make(chan struct{})
	var looks atomic.Int32
	look := func() (int, error) {
		if looks.Add(1) == 1 {
			close(begun)
			<-hang
		}
		return 7, nil
	}
	var at string
	ctx, cancel := context.WithCancelCause(stage.With(t.Context(), func(s string) { at = s }))
	gone := errors.New("the caller is gone")
	go func() {
		<-begun
		cancel(gone)
	}()
	_, err := hostpath.Look(ctx, "/dead", look)
	if !errors.Is(err, gone) || !strings.Contains(err.Error(), "look at /dead: no answer for") {
		t.Errorf("got %v", err)
	}
	if at != "look at /dead" {
		t.Errorf("the stage is %q", at)
	}
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := hostpath.Look(ctx, "/dead", look); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		cancel()
	}
	if n := looks.Load(); n != 1 {
		t.Errorf("%d threads look at one path that hangs", n)
	}
	if v, err := hostpath.Look(t.Context(), "/alive", func() (string, error) { return "x", nil }); v != "x" || err != nil {
		t.Errorf("another path: %q, %v", v, err)
	}
	close(hang)
	if v, err := hostpath.Look(t.Context(), "/dead", look); v != 7 || err != nil {
		t.Errorf("free again: %d, %v", v, err)
	}
}

// What looks shares no descriptor with the process, whose own stay open.
func TestLookHasItsOwnDescriptors(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fd := int(w.Fd())
	for range 20 { // on whatever thread
		open, err := hostpath.Look(t.Context(), "/", func() (bool, error) {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
			return err == nil, nil
		})
		if open || err != nil {
			t.Fatalf("the process's descriptor is open in a look: %t, %v", open, err)
		}
	}
	if _, err := w.Write([]byte("x")); err != nil {
		t.Errorf("the process lost its own: %v", err)
	}
}

func BenchmarkLook(b *testing.B) {
	for b.Loop() {
		if _, err := hostpath.Resolve(b.Context(), "/etc/hosts"); err != nil {
			b.Fatal(err)
		}
	}
}
