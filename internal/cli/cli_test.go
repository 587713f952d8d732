package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/cli/remote"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/inprocess"
	"fairlead.run/internal/node/foreground"
	"fairlead.run/internal/node/logs"
)

func TestExitCodes(t *testing.T) {
	tests := []struct {
		err  error
		code int
		text string
	}{
		{nil, 0, ""},
		{fmt.Errorf("exec: %w", &remote.ExitError{Code: 42}), 42, ""},
		{errors.Join(errInterrupted, errors.New("x")), 130, ""},
		{usageError{errors.New("wrong flag")}, 2, "fairlead: wrong flag\n"},
		{fmt.Errorf("there is no pod x: %w", errdefs.ErrNotFound), 1, "fairlead: there is no pod x\n"},
		{fmt.Errorf("list pods: %w", status.Error(codes.NotFound, "nothing here")), 1, "fairlead: list pods: nothing here\n"},
		{errors.New("pod \x1b[2Jx\u009b1m\r: no"), 1, "fairlead: pod \\x1b[2Jx\\x9b1m\\x0d: no\n"},
		{usageError{errors.New("\x1b]0;x\a")}, 2, "fairlead: \\x1b]0;x\\x07\n"},
		{errors.Join(errors.New("a"), errors.New("b")), 1, "fairlead: a\n          b\n"},
	}
	for _, tt := range tests {
		var out bytes.Buffer
		a := &app{err: &out}
		if code := a.exitCode(tt.err); code != tt.code || out.String() != tt.text {
			t.Errorf("%v: code %d, %q", tt.err, code, out.String())
		}
	}
}

// writes counts how often it is written to.
type writes int

func (w *writes) Write(p []byte) (int, error) { *w++; return len(p), nil }

func TestTableIsWrittenInOnePiece(t *testing.T) {
	var w writes
	if err := table(&w, [][]string{{"A", "B"}, {"1", ""}}); err != nil || w != 1 {
		t.Errorf("%d writes, %v", w, err)
	}
}

func TestConsole(t *testing.T) {
	var out, errs bytes.Buffer
	c := newConsole(&app{out: &out, err: &errs}, runFlags{})
	for pod, container := range map[string]string{"web": "c", "database": "main"} {
		c.expect(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: container}}}})
	}
	c.Line("default", "web", "c", logs.Line{Time: time.Unix(0, 0), Text: []byte("hello")})
	if got := out.String(); got != "web/c         | hello\n" {
		t.Errorf("%q", got)
	}
	running := foreground.Status{Namespace: "default", Name: "web", Phase: foreground.Running}
	c.Changed(running) // the table shows it
	c.started()
	c.Changed(running) // no news
	failed := running
	failed.Phase, failed.Message = foreground.Failed, "it broke"
	c.Changed(failed)
	c.Changed(failed)
	c.leaving()
	c.Changed(running)
	if got := errs.String(); got != "pod web: Failed: it broke\n" {
		t.Errorf("%q", got)
	}
}

func TestPlainProgress(t *testing.T) {
	var out bytes.Buffer
	d := newDisplay(&out)
	b := d.begin("img:1")
	b.update(adminv1.PullEvent{Phase: "downloading", Layers: []adminv1.Layer{{Done: 1, Total: 2}}})
	b.end(nil)
	bad := d.begin("bad:1")
	bad.update(adminv1.PullEvent{})
	bad.end(errors.New("x"))
	d.begin("no name").end(errors.New("x"))
	d.close()
	if got := out.String(); got != "pulling img:1\npulled img:1\npulling bad:1\n" {
		t.Errorf("%q", got)
	}
}

// TestBars shows pulls on a terminal.
func TestBars(t *testing.T) {
	master, slave := openTerminal(t)
	shown := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(master) // EIO once nobody has the other end
		shown <- string(text)
	}()
	d := newDisplay(slave)
	good, bad := d.begin("img:1"), d.begin("bad:1")
	good.update(adminv1.PullEvent{Phase: "downloading", Layers: []adminv1.Layer{{Phase: "downloading", Done: 1000, Total: 2000}}})
	bad.update(adminv1.PullEvent{Phase: "resolving"})
	bad.end(errors.New("x"))
	good.update(adminv1.PullEvent{Phase: "done", Layers: []adminv1.Layer{{Phase: "done", Done: 2000, Total: 2000}}})
	good.end(nil)
	d.close()
	if err := slave.Close(); err != nil {
		t.Error(err)
	}
	got := <-shown
	for _, want := range []string{"img:1", "bad:1", "done", "2.0 KB / 2.0 KB", "[====="} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q on the terminal: %q", want, got)
		}
	}
	if strings.Contains(got, "pulling") {
		t.Errorf("plain lines on a terminal: %q", got)
	}
}

// openTerminal makes one.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 120})
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

func TestConnectionLost(t *testing.T) {
	for text, want := range map[string]bool{
		`connection error: desc = "transport: Error while dialing: dial unix /s: connect: no such file or directory"`: true,
		"error reading from server: EOF":   true,
		"the network is not ready":         false,
		"handler crun does not work here":  false,
		"closing transport due to: reset!": true,
	} {
		if got := connectionLost(status.Error(codes.Unavailable, text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if !connectionLost(inprocess.ErrEnded) {
		t.Error("a daemon of our own that has ended is not found lost")
	}
	if connectionLost(nil) || connectionLost(status.Error(codes.NotFound, "connection error")) {
		t.Error("another kind of error counts as a lost connection")
	}
}

func TestSizesAndAges(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 999: "999B", 13_300_000: "13.3MB", 2e15: "2000.0TB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	for d, want := range map[time.Duration]string{time.Second: "1s", 3 * time.Minute: "3m", 5 * time.Hour: "5h", 72 * time.Hour: "3d"} {
		if got := age(time.Now().Add(-d)); got != want {
			t.Errorf("%s: %s", d, got)
		}
	}
}

// TestEveryCommandIsDescribed keeps help and reference pages complete.
func TestEveryCommandIsDescribed(t *testing.T) {
	for _, c := range Command("").Commands() {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: short description %q", c.CommandPath(), c.Short)
		}
	}
}
