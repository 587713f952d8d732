package taskapi

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.run/internal/errdefs"
)

// serve answers each call with what reply makes of its method and payload.
func serve(t *testing.T, version int, reply func(method string, payload fields) []byte) Endpoint {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, stream, body, err := readFrame(conn)
			if err != nil {
				t.Error(err)
			}
			f, _ := parse(body)
			payload, err := parse(f.bytes(3))
			if err != nil || string(f.bytes(1)) != (Endpoint{Version: version}).service() {
				t.Errorf("service %q: %v", f.bytes(1), err)
			}
			_, _ = conn.Write(frame(typeResponse, stream, reply(string(f.bytes(2)), payload)))
			_ = conn.Close()
		}
	}()
	return Endpoint{Address: "unix://" + path, Version: version}
}

// answer is a response: a status with a code, or a payload.
func answer(code uint64, text string, payload message) []byte {
	var status, m message
	if code != 0 {
		status.number(1, code)
		status.text(2, text)
	}
	m.bytes(1, status)
	m.bytes(2, payload)
	return m
}

func TestCalls(t *testing.T) {
	for _, version := range []int{2, 3} {
		e := serve(t, version, func(method string, p fields) []byte {
			var out message
			switch {
			case string(p.bytes(1)) != "c1":
				return answer(3, "id is "+string(p.bytes(1)), nil)
			case method == "Start" && string(p.bytes(2)) == "x":
				out.number(1, 77)
			case method == "Wait":
				out.number(1, 137)
			case method == "Create" && p.number(4) == 1 && string(p.bytes(5)) == "in" && string(p.bytes(6)) == "out":
			case method == "Kill" && p.number(3) == 9 && p.number(4) == 1:
			default:
				return answer(9, method+" is wrong", nil)
			}
			return answer(0, "", out)
		})
		ctx := t.Context()
		if pid, err := e.Start(ctx, Process{"c1", "x"}); pid != 77 || err != nil {
			t.Errorf("start: %d %v", pid, err)
		}
		if code, err := e.Wait(ctx, Process{ID: "c1"}); code != 137 || err != nil {
			t.Errorf("wait: %d %v", code, err)
		}
		if err := e.Create(ctx, "c1", "/b", Stdio{Terminal: true, In: "in", Out: "out"}, Any{"t", []byte("v")}); err != nil {
			t.Error(err)
		}
		if err := e.Kill(ctx, Process{ID: "c1"}, 9, true); err != nil {
			t.Error(err)
		}
		err := e.Delete(ctx, Process{ID: "c1"})
		if !errors.Is(err, errdefs.ErrPrecondition) || !errors.As(err, new(*Refusal)) || !strings.Contains(err.Error(), "Delete is wrong") {
			t.Errorf("a refusal: %v", err)
		}
	}
}

func TestNobodyAnswers(t *testing.T) {
	if _, err := (Endpoint{"unix:///no/such", 2}).Wait(t.Context(), Process{ID: "c"}); !Gone(err) {
		t.Errorf("no shim: %v", err)
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := (Endpoint{"unix://" + path, 2}).Wait(ctx, Process{ID: "c"}); !errors.Is(err, errdefs.ErrDeadline) || Gone(err) {
		t.Errorf("a shim that hangs: %v", err)
	}
}

func TestParseStarted(t *testing.T) {
	var told message
	told.number(1, 3)
	told.text(2, "unix:///run/s/1")
	told.text(3, "ttrpc")
	for out, want := range map[string]struct {
		endpoint Endpoint
		err      string
	}{
		string(told):      {endpoint: Endpoint{"unix:///run/s/1", 3}},
		"unix:///run/s/2": {endpoint: Endpoint{"unix:///run/s/2", 2}},
		"/containerd/s\n": {endpoint: Endpoint{"/containerd/s", 2}},
		"":                {err: "no address"},
		"two words":       {err: "no address"},
		"vsock://3:1024":  {err: "no unix socket"},
		`{"version":3,"address":"unix:///a","protocol":"ttrpc"}`: {endpoint: Endpoint{"unix:///a", 3}},
		`{"version":2,"address":"unix:///a","protocol":""}`:      {endpoint: Endpoint{"unix:///a", 2}},
		`{"version":3,"address":"unix:///a","protocol":"grpc"}`:  {err: "only ttrpc"},
		`{"version":4,"address":"unix:///a","protocol":"ttrpc"}`: {err: "version 4"},
		strings.Repeat("x", 1000):                                {err: "no address"},
	} {
		got, err := ParseStarted([]byte(out))
		if want.err == "" && (err != nil || got != want.endpoint) || want.err != "" && (err == nil || !strings.Contains(err.Error(), want.err)) {
			t.Errorf("%q: %+v, %v", out, got, err)
		}
	}
}

func TestSocketFolder(t *testing.T) {
	for folder, want := range map[string]string{"/run/x/shims": "/run/x/shims", "/" + strings.Repeat("x", 50): ""} {
		b := Bootstrap{ID: "c", Events: "unix:///run/x/e", Sockets: folder}
		f, err := parse(b.Encode())
		if got := string(f.bytes(9)); err != nil || got != want {
			t.Errorf("told of %q as %q: %v", folder, got, err)
		}
		if got := b.SocketPaths(); len(got) != 2 || filepath.Dir(got[0]) != folder || filepath.Dir(got[1]) != DefaultSockets {
			t.Errorf("looked for at %v", got)
		}
	}
}

func TestRecord(t *testing.T) {
	root := t.TempDir()
	if _, err := ReadRecord(root, "c"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("without a record: %v", err)
	}
	r := Record{Shim: "/bin/shim", Sandbox: "p", Bundle: "/b", Stage: Creating, Endpoint: Endpoint{"unix:///a", 3}, PID: 5}
	if err := r.Write(filepath.Dir(root), filepath.Base(root)); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadRecord(filepath.Dir(root), filepath.Base(root)); err != nil || got != r {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestEventsAreTaken(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	go AcceptEvents(l)
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for stream := uint32(1); stream < 9; stream += 2 {
		if _, err := conn.Write(frame(typeRequest, stream, []byte("event"))); err != nil {
			t.Fatal(err)
		}
		kind, to, body, err := readFrame(conn)
		if err != nil || kind != typeResponse || to != stream {
			t.Fatalf("%d %d %v", kind, to, err)
		}
		if _, err := result(body); err != nil {
			t.Error(err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte{})
	f.Add(answer(5, "gone", nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		// Whatever it is, it ends with a message or an error.
		if f, err := result(data); (f == nil) != (err != nil) {
			t.Errorf("%v and %v", f, err)
		}
		_, _ = ParseStarted(data)
		_, _ = ParseInfo(data)
	})
}
