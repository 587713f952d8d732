package plugins

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestFoldersThatCannotBeWatched are looked at all the same: plugins come and go.
func TestFoldersThatCannotBeWatched(t *testing.T) {
	dir, err := os.MkdirTemp("", "look") // a path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := New(Config{Folder: dir, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	defer r.running.Wait()
	defer cancel()
	deaf := errors.New("too many watches")
	look := func(want int) {
		t.Helper()
		if err := r.look(ctx, func(string) error { return deaf }); !errors.Is(err, deaf) || len(r.sessions) != want {
			t.Errorf("%v, %d sockets, want %d", err, len(r.sessions), want)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "a.sock"))
	if err != nil {
		t.Fatal(err)
	}
	look(1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	look(0)
	if err := r.look(ctx, func(string) error { return nil }); err != nil {
		t.Error(err)
	}
}
