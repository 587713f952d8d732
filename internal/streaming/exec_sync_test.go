package streaming

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

func TestExecSync(t *testing.T) {
	s := serve(t, &fakeCore{}, nil)
	r, err := s.ExecSync(t.Context(), "c1", []string{"/bin/sh", "-c", "echo out; echo err >&2; exit 5"})
	if err != nil {
		t.Fatal(err)
	}
	if string(r.Stdout) != "out\n" || string(r.Stderr) != "err\n" || r.ExitCode != 5 {
		t.Errorf("got %q, %q and %d", r.Stdout, r.Stderr, r.ExitCode)
	}
	if _, err := s.ExecSync(t.Context(), "gone", []string{"true"}); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestExecSyncIsKilledAtItsDeadline(t *testing.T) {
	core := &fakeCore{}
	s := serve(t, core, nil)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errdefs.ErrDeadline)
	defer cancel()
	_, err := s.ExecSync(ctx, "c1", []string{"/bin/sh", "-c", "sleep 1000 & sleep 1000"})
	if !errors.Is(err, errdefs.ErrDeadline) {
		t.Errorf("got %v, want a deadline", err)
	}
	proc := core.last(t, 1)
	if !proc.wasKilled() {
		t.Error("the command was not killed")
	}
	eventually(t, "its children to end", func() bool { return unix.Kill(-proc.cmd.Process.Pid, 0) != nil })
}

func TestExecSyncDropsTooMuchOutput(t *testing.T) {
	s := serve(t, &fakeCore{}, nil)
	r, err := s.ExecSync(t.Context(), "c1", []string{"/bin/sh", "-c", "head -c 20000000 /dev/zero; echo important >&2; exit 4"})
	if err != nil {
		t.Fatal(err)
	}
	if r.ExitCode != 4 {
		t.Errorf("got exit code %d, want 4: the command must go on", r.ExitCode)
	}
	if n := len(r.Stdout) + len(r.Stderr); n > 16<<20 || len(r.Stdout) < 14<<20 {
		t.Errorf("got %d and %d bytes", len(r.Stdout), len(r.Stderr))
	}
	contains(t, string(r.Stderr), "important\n")
	contains(t, string(r.Stderr), "bytes of stdout")
}

func TestExecSyncDoesNotWaitForWhatHoldsItsOutput(t *testing.T) {
	core := &fakeCore{}
	s := serve(t, core, nil)
	start := time.Now()
	r, err := s.ExecSync(t.Context(), "c1", []string{"/bin/sh", "-c", "yes & sleep 60 & echo done"})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	contains(t, string(r.Stdout), "done\n")
	_ = unix.Kill(-core.last(t, 1).cmd.Process.Pid, unix.SIGKILL)
}

func TestCapture(t *testing.T) {
	c := &capture{left: maxCaptured}
	stdout, stderr := &captured{of: c}, &captured{of: c}
	big := bytes.Repeat([]byte("x"), maxCaptured+10)
	_, _ = stdout.Write(big)
	_, _ = stderr.Write([]byte(strings.Repeat("e", 100)))
	if len(stdout.data) != maxCaptured-reserved || stdout.dropped != reserved+10 || len(stderr.data) != 100 || stderr.dropped != 0 {
		t.Errorf("kept %d and %d, dropped %d and %d", len(stdout.data), len(stderr.data), stdout.dropped, stderr.dropped)
	}
	_, _ = stderr.Write(big)
	if got := len(stdout.data) + len(stderr.data); got != maxCaptured {
		t.Errorf("kept %d in all, want %d", got, maxCaptured)
	}
}
