package wire

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func pair(t *testing.T) (*Conn, *Conn) {
	t.Helper()
	fds, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*Conn
	for i, fd := range fds {
		if conns[i], err = NewConn(fd); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conns[i].Close() })
	}
	return conns[0], conns[1]
}

func TestFramesAndDescriptors(t *testing.T) {
	a, b := pair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	big := strings.Repeat("x", 500_000)
	passed := int(w.Fd())
	sent := make(chan error, 1)
	go func() {
		if err := a.Send("first", passed); err != nil {
			sent <- err
			return
		}
		sent <- a.Send(big)
		_ = a.Close()
	}()
	var got string
	fds, err := b.Recv(&got, 100)
	if err != nil || got != "first" || len(fds) != 1 {
		t.Fatalf("%q %v %v", got, fds, err)
	}
	_ = w.Close()
	if _, err := unix.Write(fds[0], []byte("!")); err != nil {
		t.Error(err)
	}
	CloseAll(fds)
	if text, _ := io.ReadAll(r); string(text) != "!" {
		t.Errorf("through the descriptor: %q", text)
	}
	if _, err := b.Recv(&got, 1<<20); err != nil || got != big {
		t.Errorf("%d bytes %v", len(got), err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if _, err := b.Recv(&got, 100); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

// A frame that is refused takes its descriptors with it.
func TestRefusedFramesCloseDescriptors(t *testing.T) {
	for name, c := range map[string]struct {
		limit int
		into  any
		want  error
	}{
		"too large": {3, new(string), ErrTooLarge},
		"malformed": {100, new(int), ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if err := a.Send("text", int(w.Fd())); err != nil {
				t.Fatal(err)
			}
			_ = w.Close()
			if _, err := b.Recv(c.into, c.limit); !errors.Is(err, c.want) {
				t.Errorf("error: %v", err)
			}
			if _, err := io.ReadAll(r); err != nil { // ends only when no writer is left
				t.Error(err)
			}
		})
	}
}

func TestLongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "sock")
	fd, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewListener(os.NewFile(uintptr(fd), path))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if uid, err := other.PeerUID(); err != nil || int(uid) != os.Getuid() {
		t.Errorf("peer %d %v", uid, err)
	}
}
