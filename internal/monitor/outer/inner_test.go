package outer

import (
	"log/slog"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/monitor/handover"
	"fairlead.run/internal/monitor/wire"
)

// What is held and not open costs nobody the rest, and the monitor its socket
// for a moment alone.
func TestSendHeld(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	const closed = 1 << 20 // more than there may be
	o := &outer{
		cfg:  Config{StateDir: dir, Log: slog.New(slog.DiscardHandler)},
		held: map[string]int{handover.KeyListener: closed, "gone": closed, "there": null},
	}
	pair, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := wire.NewConn(pair[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	sent := make(chan error, 1)
	go func() {
		_, err := o.receive(conn) // hello
		sent <- err
	}()
	link, err := handover.Connect(pair[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{handover.KeyListener: true, "there": true, "gone": false} {
		fd, ok := link.Take(key)
		if ok != want {
			t.Errorf("%s was passed on: %t", key, ok)
		}
		if ok {
			_ = unix.Close(fd)
		}
	}
	called, err := wire.Dial(t.Context(), Socket(dir))
	if err != nil {
		t.Fatal(err)
	}
	_ = called.Close()
	for _, fd := range o.held {
		_ = unix.Close(fd)
	}
}
