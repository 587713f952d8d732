package forward

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
)

// named knows one port.
func named(name string) (uint16, error) {
	if name != "http" {
		return 0, errors.New("no port " + name)
	}
	return 8080, nil
}

func TestParse(t *testing.T) {
	for text, want := range map[string]Port{"80": {80, 80}, "8080:80": {8080, 80}, ":80": {0, 80}, "0:80": {0, 80}, "65535:65535": {65535, 65535}, "http": {8080, 8080}, "80:http": {80, 8080}, ":http": {0, 8080}} {
		if got, err := Parse([]string{text}, named); err != nil || !slices.Equal(got, []Port{want}) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", ":", "0", "8080:", "8080:0", "65536", "-1", "http:80", "h--p", "HTTP", "a-name-of-16-long", "1:2:3", "1,2", " 80"} {
		if got, err := Parse([]string{"1", text}, named); err == nil || !strings.Contains(err.Error(), ":REMOTE") {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if got, err := Parse([]string{"80", "8080:dns"}, named); err == nil || err.Error() != "no port dns" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestListen(t *testing.T) {
	list, err := Listen([]string{Localhost}, []Port{{0, 80}, {0, 443}})
	if err != nil {
		t.Fatal(err)
	}
	ports := map[uint16]map[int]bool{80: {}, 443: {}}
	for _, l := range list {
		ports[l.Remote][l.Local()] = true
		if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
			t.Errorf("listens at %s", ip)
		}
	}
	if len(ports[80]) != 1 || len(ports[443]) != 1 {
		t.Errorf("not one local port for each: %v", ports)
	}
	taken := uint16(list[0].Local())
	if _, err := Listen([]string{"127.0.0.1"}, []Port{{0, 1}, {taken, 80}}); err == nil || !strings.Contains(err.Error(), ":80 takes any") {
		t.Errorf("a port that is taken: %v", err)
	}
	if _, err := Listen([]string{"node.example"}, []Port{{0, 80}}); err == nil || !strings.Contains(err.Error(), "node.example") {
		t.Errorf("a name: %v", err)
	}
	if err := list.Close(); err != nil {
		t.Error(err)
	}
}

// TestRun has connections of two ports at a time, and all of them end with the context.
func TestRun(t *testing.T) {
	list, err := Listen([]string{"127.0.0.1"}, []Port{{0, 1}, {0, 2}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- list.Run(ctx, func(_ context.Context, conn net.Conn, from Listener) {
			_, _ = conn.Write([]byte{byte(from.Remote)})
			_, _ = io.Copy(io.Discard, conn)
		})
	}()
	var open []net.Conn
	for _, l := range append(list, list...) {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		first := make([]byte, 1)
		if _, err := io.ReadFull(conn, first); err != nil || uint16(first[0]) != l.Remote {
			t.Errorf("port %d: %v, %v", l.Remote, first, err)
		}
		open = append(open, conn)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, conn := range open {
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("a connection outlives the command")
		}
	}
	if conn, err := net.Dial("tcp", list[0].Addr().String()); err == nil {
		_ = conn.Close()
		t.Error("a listener outlives the command")
	}
}

// TestRunEndsWithAListener has one of two listeners break.
func TestRunEndsWithAListener(t *testing.T) {
	list, err := Listen([]string{"127.0.0.1"}, []Port{{0, 1}, {0, 2}})
	if err != nil {
		t.Fatal(err)
	}
	if err := list[1].Close(); err != nil {
		t.Fatal(err)
	}
	if err := list.Run(t.Context(), func(context.Context, net.Conn, Listener) {}); err == nil {
		t.Error("no error")
	}
}
