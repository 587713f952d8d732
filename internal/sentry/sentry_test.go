package sentry

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"fairlead.run/internal/errdefs"
)

// sandbox answers each request with what answer says of it, or hangs up.
func sandbox(t *testing.T, answer func(method string, arg json.RawMessage) string) (root, socket string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), strings.Repeat("long", 20)) // longer than an address may be
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	l, err := net.Listen("unix", "runsc-box.sock")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var call struct {
				Method string
				Arg    json.RawMessage
			}
			if json.NewDecoder(c).Decode(&call) == nil {
				_, _ = c.Write([]byte(answer(call.Method, call.Arg)))
			}
			_ = c.Close()
		}
	}()
	socket, err = Socket(root, "box")
	if err != nil {
		t.Fatal(err)
	}
	return root, socket
}

func TestWait(t *testing.T) {
	for name, tt := range map[string]struct {
		answer       string
		code, signal int
		fault        error
	}{
		"code":     {answer: `{"success":true,"err":"","result":1792}`, code: 7},
		"signal":   {answer: `{"success":true,"err":"","result":9}`, code: -1, signal: 9},
		"refused":  {answer: `{"success":false,"err":"no such container","result":null}`, fault: errdefs.ErrPrecondition},
		"hangs up": {answer: "", fault: errdefs.ErrUnavailable},
		"garbage":  {answer: "<html>", fault: errdefs.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			_, socket := sandbox(t, func(method string, arg json.RawMessage) string {
				if method != "containerManager.Wait" || string(arg) != `"c1"` {
					return `{"success":false,"err":"wrong request"}`
				}
				return tt.answer
			})
			st, err := Wait(context.Background(), socket, "c1")
			if !errors.Is(err, tt.fault) {
				t.Fatalf("error %v, want %v", err, tt.fault)
			}
			if Refused(err) != (tt.fault == errdefs.ErrPrecondition) {
				t.Errorf("Refused(%v) = %v", err, Refused(err))
			}
			if err == nil && (st.ExitStatus() != tt.code || tt.signal != 0 && int(st.Signal()) != tt.signal) {
				t.Errorf("status %#x", st)
			}
		})
	}
}

func TestSignal(t *testing.T) {
	_, socket := sandbox(t, func(method string, arg json.RawMessage) string {
		if method == "containerManager.Signal" && string(arg) == `{"CID":"c1","Signo":15,"PID":0,"Mode":1}` {
			return `{"success":true}`
		}
		return `{"success":false,"err":"wrong request"}`
	})
	if err := Signal(context.Background(), socket, "c1", syscall.SIGTERM, true); err != nil {
		t.Error(err)
	}
	if err := Signal(context.Background(), socket, "c1", syscall.SIGTERM, false); !Refused(err) {
		t.Errorf("to the first process alone: %v", err)
	}
}

func TestSocketOfNoSandbox(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "runsc-none.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if path, err := Socket(dir, "none"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("%q %v", path, err)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	block := make(chan struct{})
	_, socket := sandbox(t, func(string, json.RawMessage) string { cancel(); <-block; return "" })
	_, err := Wait(ctx, socket, "c1")
	close(block)
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
