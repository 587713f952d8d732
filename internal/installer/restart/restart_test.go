package restart

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		method  string
		command []string
		want    string
	}{
		"nothing":           {"", nil, ""},
		"auto":              {Auto, nil, ""},
		"systemd":           {BySystemd, nil, ""},
		"none":              {BySomebody, nil, ""},
		"command":           {ByCommand, []string{"/bin/reload"}, ""},
		"no command":        {ByCommand, nil, "needs a command"},
		"a command for all": {BySystemd, []string{"/bin/reload"}, "only with --restart command"},
		"unknown":           {"reboot", nil, `"reboot" is no way`},
	} {
		err := Check(c.method, c.command)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !errors.Is(err, errdefs.ErrInvalidArgument)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCommand(t *testing.T) {
	if err := (Command{Args: []string{"true"}, Root: "/"}).Restart(t.Context()); err != nil {
		t.Error(err)
	}
	err := Command{Args: []string{"sh", "-c", "echo it is masked >&2; exit 3"}}.Restart(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exit status 3: it is masked") {
		t.Errorf("%v", err)
	}
	if err := (Command{Args: []string{"/none/of/this"}}).Restart(t.Context()); err == nil {
		t.Error("a program that is absent was run")
	}
	if os.Geteuid() == 0 {
		// In a node's root a program of this one is none.
		if err := (Command{Args: []string{"/bin/true"}, Root: t.TempDir()}).Restart(t.Context()); err == nil {
			t.Error("it was not run in the node's root")
		}
	}
	if err := (None{}).Restart(t.Context()); err != nil {
		t.Error(err)
	}
}

// On the node itself PATH is about the node.
func TestCommandOfThisNode(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bounce-it"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	c, err := CommandOf([]string{"bounce-it", "x"}, "/")
	if err != nil || len(c.Args) != 2 || c.Args[0] != filepath.Join(dir, "bounce-it") {
		t.Errorf("%v %v", c, err)
	}
	if _, err := CommandOf([]string{"bounce-it", "x"}, t.TempDir()); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("in a container: %v", err)
	}
}

// A command that hangs ends with the context.
func TestCommandThatHangs(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Command{Args: []string{"sh", "-c", `echo >"$0"; exec sleep 1000`, fifo}}.Restart(ctx) }()
	if _, err := os.ReadFile(fifo); err != nil { // it runs
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("it has ended well")
	}
}

// One that has started the daemon and ended well has done what it should, though the
// daemon holds its output.
func TestCommandThatStartsADaemon(t *testing.T) {
	t.Parallel()
	life := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(life, 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(life, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }() // the daemon ends with it
	if err := (Command{Args: []string{"sh", "-c", `cat <"$0" & exit 0`, life}}).Restart(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestHangup(t *testing.T) {
	cmd := exec.Command("sh", "-c", `trap "exit 7" HUP; echo ready; read line`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	pid := func() (int, error) { return cmd.Process.Pid, nil }
	if err := (Hangup{PID: pid, Program: "crio"}).Restart(t.Context()); !errors.Is(err, errdefs.ErrPrecondition) || !strings.Contains(err.Error(), "is sh") {
		t.Errorf("one that may end by it: %v", err)
	}
	if err := (Hangup{PID: pid, Program: "sh"}).Restart(t.Context()); err != nil {
		t.Error(err)
	}
	_, _ = io.Copy(io.Discard, out)
	err = cmd.Wait()
	if cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("it has ended with %v", err)
	}
	if err := (Hangup{PID: pid, Program: "sh"}).Restart(t.Context()); err == nil {
		t.Error("one that is gone was sent a signal")
	}
	nobody := errors.New("nobody listens")
	if err := (Hangup{PID: func() (int, error) { return 0, nobody }, Program: "crio"}).Restart(t.Context()); !errors.Is(err, nobody) {
		t.Errorf("%v", err)
	}
}

func TestStrings(t *testing.T) {
	for want, r := range map[string]Restarter{
		"restart of a.service by systemd": Systemd{Unit: "a.service"}, "SIGHUP to crio": Hangup{Program: "crio"}, "command /bin/reload -f": Command{Args: []string{"/bin/reload", "-f"}},
		"no restart: somebody else is expected to do it": None{},
	} {
		if got := r.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
