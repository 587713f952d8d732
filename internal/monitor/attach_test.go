package monitor_test

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/client"
)

var (
	attachIn  = client.AttachStreams{Stdin: true}
	attachAll = client.AttachStreams{Stdin: true, Stdout: true, Stderr: true}
)

func TestAttach(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	req := n.shell("a", `printf 'name? '; read x; echo "hello $x"; echo oops >&2; read y; echo "$y again"`)
	req.Stdin = true
	n.start(req)
	s, err := n.Attach(n.ctx, "a", attachAll)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Write([]byte("world\n")); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(s.Stdout).ReadString('\n')
	if err != nil || !strings.HasSuffix(line, "hello world\n") {
		t.Errorf("attached: %q %v", line, err)
	}
	errs, err := bufio.NewReader(s.Stderr).ReadString('\n')
	if err != nil || errs != "oops\n" {
		t.Errorf("attached to errors: %q %v", errs, err)
	}
	// Leaving does not close an input that is not for one use.
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	second, err := n.Attach(n.ctx, "a", attachAll)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	_, _ = second.Write([]byte("and\n"))
	rest, err := io.ReadAll(second.Stdout)
	if err != nil || string(rest) != "and again\n" {
		t.Errorf("second: %q %v", rest, err)
	}
	if err := second.Wait(n.ctx); err != nil {
		t.Errorf("end of the session: %v", err)
	}
	n.wait("a")
	if got := n.text("a", "stdout"); got != "name? hello world\nand again\n" {
		t.Errorf("log: %q", got)
	}
	if _, err := n.Attach(n.ctx, "a", attachAll); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Errorf("attach after the end: %v", err)
	}
}

func TestStdin(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	t.Run("once", func(t *testing.T) {
		req := n.shell("once", "wc -c")
		req.Stdin, req.StdinOnce = true, true
		n.start(req)
		idle, err := n.Attach(n.ctx, "once", attachIn)
		if err != nil {
			t.Fatal(err)
		}
		_ = idle.Close() // wrote nothing
		s, err := n.Attach(n.ctx, "once", attachIn)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte("12345")); err != nil {
			t.Fatal(err)
		}
		_ = s.Close()
		n.wait("once")
		if got := n.text("once", "stdout"); strings.TrimSpace(got) != "5" {
			t.Errorf("counted %q", got)
		}
	})
	t.Run("close", func(t *testing.T) {
		req := n.shell("close", "cat; echo end")
		req.Stdin = true
		n.start(req)
		if err := n.CloseStdin(n.ctx, "close"); err != nil {
			t.Fatal(err)
		}
		n.wait("close")
		if got := n.text("close", "stdout"); got != "end\n" {
			t.Errorf("log %q", got)
		}
	})
	t.Run("none", func(t *testing.T) {
		n.start(n.shell("none", "cat; echo end"))
		if e := n.wait("none"); e.Code != 0 {
			t.Errorf("exit %+v", e)
		}
	})
}

// A caller that does not read is cut off; the container does not notice.
func TestSlowAttach(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	req := n.shell("a", "read x; yes 0123456789012345678901234567890123456789 | head -c 20000000; echo done")
	req.Stdin = true
	n.start(req)
	s, err := n.Attach(n.ctx, "a", attachAll)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, _ = s.Write([]byte("\n"))
	if e := n.wait("a"); e.Code != 0 {
		t.Errorf("exit %+v", e)
	}
	if err := s.Wait(n.ctx); !errors.Is(err, errdefs.ErrExhausted) {
		t.Errorf("end of the session: %v", err)
	}
	if got := n.text("a", "stdout"); !strings.HasSuffix(got, "done\n") || len(got) < 20000000 {
		t.Errorf("log of %d bytes", len(got))
	}
}

func (n *node) terminal(id, script string) monitorv1.StartRequest {
	req := n.shell(id, script)
	req.Command[3] = monitorv1.ConsoleSocket
	req.TTY = true
	req.Size = monitorv1.WindowSize{Width: 100, Height: 30}
	return req
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(n.terminal("a", "sleep 0.1; stty size; read x; stty size; echo got $x; exit 4"))
	s, err := n.Attach(n.ctx, "a", client.AttachStreams{Stdin: true, Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !s.TTY {
		t.Error("not told of the terminal")
	}
	n.eventually("the first size", func() bool { return strings.Contains(n.text("a", "stdout"), "30 100") })
	if err := n.Resize(n.ctx, "a", 77, 22); err != nil {
		t.Fatal(err)
	}
	// The terminal outlives the process that received it.
	n.kill(n.info().InnerPID)
	s, err = n.Attach(n.ctx, "a", client.AttachStreams{Stdin: true, Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, _ = s.Write([]byte("it\n"))
	if e := n.wait("a"); e.Code != 4 {
		t.Errorf("exit %+v", e)
	}
	if got := n.text("a", "stdout"); !strings.Contains(got, "22 77") || !strings.Contains(got, "got it\r\n") {
		t.Errorf("log %q", got)
	}
	if err := n.Resize(n.ctx, "a", 1, 1); err != nil && !errors.Is(err, errdefs.ErrPrecondition) {
		t.Errorf("resize after the end: %v", err)
	}
	n.start(n.shell("plain", "exec sleep 1000"))
	if err := n.Resize(n.ctx, "plain", 1, 1); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Errorf("resize without a terminal: %v", err)
	}
	_ = n.Signal(n.ctx, "plain", unix.SIGKILL, false)
}
