package monitor_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
)

// A kernel without SELinux keeps any text as a label.
func TestLabelOfFIFOs(t *testing.T) {
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err == nil {
		t.Skip("needs a kernel without SELinux")
	}
	t.Parallel()
	n := newNode(t)
	for id, label := range map[string]string{"with": "u:r:t:s0:c1,c2", "without": ""} {
		req := n.shell(id, "read line")
		req.Stdin, req.Label = true, label
		n.start(req)
		for _, name := range []string{"stdin", "stdout", "stderr"} {
			b := make([]byte, 100)
			size, err := unix.Lgetxattr(req.IODir+"/"+name, "security.selinux", b)
			if got := string(b[:max(size, 0)]); got != label || err != nil && !errors.Is(err, unix.ENODATA) {
				t.Errorf("%s has the label %q (%v), want %q", name, got, err, label)
			}
		}
		if err := n.Signal(n.ctx, id, 9, true); err != nil {
			t.Error(err)
		}
		n.wait(id)
	}
}

func TestExitCodeAndOutput(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(n.shell("a", "echo out; echo err >&2; printf unfinished; exit 7"))
	e := n.wait("a")
	if e.Code != 7 || e.Signal != 0 || e.Lost || e.OOMKilled || e.Seq == 0 || e.FinishedAt.IsZero() {
		t.Errorf("exit: %+v", e)
	}
	if got := n.text("a", "stdout"); got != "out\nunfinished" {
		t.Errorf("stdout: %q", got)
	}
	if got := n.text("a", "stderr"); got != "err\n" {
		t.Errorf("stderr: %q", got)
	}
	if st, err := os.Stat(n.dir + "/a.log"); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("mode of the log: %v %v", st.Mode(), err)
	}
	if _, err := n.Start(n.ctx, n.shell("a", "true")); !errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Errorf("start of an ended id: %v", err)
	}
	if err := n.Forget(n.ctx, "a"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(n.dir + "/a.io"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder of FIFOs left: %v", err)
	}
	if _, err := n.Wait(n.ctx, "a"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("wait for a forgotten id: %v", err)
	}
	n.start(n.shell("a", "exit 0"))
	if e := n.wait("a"); e.Code != 0 {
		t.Errorf("second life: %+v", e)
	}
}

func TestSignal(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	s := n.start(n.shell("a", "exec sleep 1000"))
	again := n.start(n.shell("a", "exec sleep 1000"))
	if again.PID != s.PID || again.StartTime != s.StartTime {
		t.Errorf("the same start again: %+v, not %+v", again, s)
	}
	if err := n.Forget(n.ctx, "a"); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Errorf("forget a living process: %v", err)
	}
	if err := n.Signal(n.ctx, "a", unix.SIGTERM, false); err != nil {
		t.Fatal(err)
	}
	if e := n.wait("a"); e.Signal != int(unix.SIGTERM) || e.Code != 143 {
		t.Errorf("exit: %+v", e)
	}
	if err := n.Signal(n.ctx, "a", unix.SIGTERM, false); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("signal an ended process: %v", err)
	}
}

func TestLongAndPartialLines(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	req := n.shell("a", `i=0; while [ $i -lt 1000 ]; do printf abcdefghij; i=$((i+1)); done; echo; printf pa; sleep 0.2; printf rt; sleep 0.2; echo ial`)
	req.LogMaxLine = 4096
	n.start(req)
	n.wait("a")
	var tags string
	for _, e := range n.log("a") {
		if len(e.text) > 4096 {
			t.Errorf("entry of %d bytes", len(e.text))
		}
		tags += e.tag
	}
	// A line written in pieces is one entry; only a long one is split.
	if tags != "PPFF" {
		t.Errorf("tags: %s", tags)
	}
	if got := n.text("a", "stdout"); got != strings.Repeat("abcdefghij", 1000)+"\npartial\n" {
		t.Errorf("text: %.60q... %d bytes", got, len(got))
	}
}

func TestReopenLog(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	req := n.shell("a", `read x; echo one; read x; echo two`)
	req.Stdin = true
	n.start(req)
	s, err := n.Attach(n.ctx, "a", attachIn)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, _ = s.Write([]byte("\n"))
	n.eventually("the first line", func() bool { return len(n.log("a")) == 1 })
	if err := os.Rename(n.dir+"/a.log", n.dir+"/a.log.1"); err != nil {
		t.Fatal(err)
	}
	if err := n.ReopenLog(n.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	_, _ = s.Write([]byte("\n"))
	n.wait("a")
	if old := n.logFile(n.dir + "/a.log.1"); len(old) != 1 || old[0].text != "one" {
		t.Errorf("old log: %v", old)
	}
	if got := n.text("a", "stdout"); got != "two\n" {
		t.Errorf("new log: %q", got)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	if err := os.Symlink("/tmp/elsewhere", n.dir+"/link.log"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*monitorv1.StartRequest)
		kind   error
		says   string
	}{
		"no command":       {func(r *monitorv1.StartRequest) { r.Command = nil }, errdefs.ErrInvalidArgument, "absolute path"},
		"relative command": {func(r *monitorv1.StartRequest) { r.Command = []string{"runc"} }, errdefs.ErrInvalidArgument, "absolute path"},
		"missing program":  {func(r *monitorv1.StartRequest) { r.Command = []string{"/no/such"} }, errdefs.ErrInvalidArgument, "/no/such"},
		"id with slash":    {func(r *monitorv1.StartRequest) { r.ID = "../x" }, errdefs.ErrInvalidArgument, "letters"},
		"line length":      {func(r *monitorv1.StartRequest) { r.LogMaxLine = 1 << 20 }, errdefs.ErrInvalidArgument, "logMaxLine"},
		"terminal unasked": {func(r *monitorv1.StartRequest) { r.TTY = true }, errdefs.ErrInvalidArgument, "{console-socket}"},
		"log is symlink":   {func(r *monitorv1.StartRequest) { r.LogPath = n.dir + "/link.log" }, errdefs.ErrInvalidArgument, "symbolic link"},
		"log is directory": {func(r *monitorv1.StartRequest) { r.LogPath = n.dir }, errdefs.ErrInvalidArgument, n.dir},
		"log unwritable":   {func(r *monitorv1.StartRequest) { r.LogPath = "/proc/x/y.log" }, errdefs.ErrInvalidArgument, "/proc/x"},
		"runtime fails":    {func(r *monitorv1.StartRequest) { r.Command = []string{"/bin/sh", "-c", "echo because >&2; exit 3"} }, errdefs.ErrInternal, "it said: because"},
		"no pid file":      {func(r *monitorv1.StartRequest) { r.Command = []string{"/bin/true"} }, errdefs.ErrInternal, "no pid file"},
		"bad pid file": {func(r *monitorv1.StartRequest) {
			r.Command = []string{"/bin/sh", "-c", "echo nonsense > " + r.PIDFile}
		}, errdefs.ErrInternal, "nonsense"},
		"runtime hangs": {func(r *monitorv1.StartRequest) {
			r.Command, r.Timeout = []string{"/bin/sh", "-c", "sleep 1000 & sleep 1000"}, 200*time.Millisecond
		}, errdefs.ErrDeadline, "killed"},
	} {
		t.Run(name, func(t *testing.T) {
			req := n.shell("x", "true")
			c.change(&req)
			_, err := n.Start(n.ctx, req)
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error: %v", err)
			}
		})
	}
	if list, err := n.List(n.ctx); err != nil || len(list) != 0 {
		t.Errorf("left: %v %v", list, err)
	}
	if left, _ := os.ReadDir(n.dir + "/s/monitor/proc"); len(left) != 0 {
		t.Errorf("records left: %v", left)
	}
}
