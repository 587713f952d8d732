package shutdown

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	corev1 "k8s.io/api/core/v1"
)

const patience = time.Minute

// bus is a D-Bus of the test's own. On it, anybody may be anything.
func bus(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("dbus-daemon"); err != nil {
		t.Skip("needs dbus-daemon")
	}
	dir := t.TempDir()
	address := "unix:path=" + filepath.Join(dir, "bus")
	config := `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>` + address + `</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`
	file := filepath.Join(dir, "bus.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	daemon := exec.CommandContext(t.Context(), "dbus-daemon", "--nofork", "--nopidfile", "--config-file="+file, "--print-address")
	out, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
	})
	if _, err := out.Read(make([]byte, 1000)); err != nil { // its address, once it listens
		t.Fatal(err)
	}
	return address
}

// logind is what a Manager asks of systemd, and nothing more.
type logind struct {
	t    *testing.T
	conn *dbus.Conn

	mu     sync.Mutex
	delay  time.Duration
	after  time.Duration // the delay once it has read its settings again
	locks  []*os.File    // the ends that show whether the others are open
	asked  []string
	signal []string // units that were signalled
}

func serve(t *testing.T, address string, l *logind) *logind {
	t.Helper()
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	l.t, l.conn = t, conn
	t.Cleanup(func() { _ = conn.Close() })
	for _, side := range []string{loginSide, "org.freedesktop.DBus.Properties"} {
		if err := conn.Export(l, loginPath, side); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Export(l, systemdPath, systemd+".Manager"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{systemd, login} {
		if reply, err := conn.RequestName(name, dbus.NameFlagReplaceExisting|dbus.NameFlagAllowReplacement); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
			t.Fatalf("%v, %v", reply, err)
		}
	}
	return l
}

// Inhibit is logind's.
func (l *logind) Inhibit(what, who, _, mode string) (dbus.UnixFD, *dbus.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	l.locks = append(l.locks, os.NewFile(uintptr(fds[0]), "lock"))
	l.asked = append(l.asked, what+" "+who+" "+mode)
	time.AfterFunc(time.Second, func() { _ = syscall.Close(fds[1]) }) // once it was sent
	return dbus.UnixFD(fds[1]), nil
}

// Get is of all objects with properties.
func (l *logind) Get(side, name string) (dbus.Variant, *dbus.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if side != loginSide || name != maxDelay {
		return dbus.Variant{}, dbus.NewError("org.freedesktop.DBus.Error.UnknownProperty", nil)
	}
	return dbus.MakeVariant(uint64(l.delay.Microseconds())), nil
}

// KillUnit is systemd's.
func (l *logind) KillUnit(unit, who string, signal int32) *dbus.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.signal = append(l.signal, unit+" "+who+" "+syscall.Signal(signal).String())
	l.delay = l.after
	return nil
}

func (l *logind) emit(begins bool) {
	l.t.Helper()
	if err := l.conn.Emit(loginPath, loginSide+"."+prepare, begins); err != nil {
		l.t.Fatal(err)
	}
}

func (l *logind) holders() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.locks)
}

// released waits until nobody holds the n-th lock.
func (l *logind) released(n int) {
	l.t.Helper()
	l.mu.Lock()
	lock := l.locks[n]
	l.mu.Unlock()
	_ = lock.SetReadDeadline(time.Now().Add(patience))
	if _, err := lock.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		l.t.Fatalf("lock %d is still held: %v", n, err)
	}
}

// held says whether somebody holds the n-th lock.
func (l *logind) held(n int) bool {
	l.mu.Lock()
	lock := l.locks[n]
	l.mu.Unlock()
	_ = lock.SetReadDeadline(time.Now().Add(1500 * time.Millisecond)) // longer than our own end is open
	_, err := lock.Read(make([]byte, 1))
	return os.IsTimeout(err)
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in %s: %s", patience, what)
		}
	}
}

// watch runs a Manager until the end of the test.
func watch(t *testing.T, address string, f *fake) (m *Manager, stop func()) {
	t.Helper()
	f.start, f.told = time.Now(), make(chan string, 100)
	levels, err := Settings{Period: 30 * time.Second, Critical: 10 * time.Second}.Levels()
	if err != nil {
		t.Fatal(err)
	}
	m = New(Config{Levels: levels, Bus: address, DropIns: filepath.Join(t.TempDir(), "conf.d"), Log: slog.New(slog.DiscardHandler)}, f)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return m, stop
}

func next(t *testing.T, f *fake, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-f.told:
			if got != w {
				t.Fatalf("%q, want %q", got, w)
			}
		case <-time.After(patience):
			t.Fatalf("nothing, want %q", w)
		}
	}
}

func TestShutdown(t *testing.T) {
	address := bus(t)
	l := serve(t, address, &logind{delay: time.Minute})
	f := &fake{pods: []*corev1.Pod{pod("critical", static, takes(0)), pod("web", takes(0))}}
	m, _ := watch(t, address, f)
	eventually(t, "somebody holds logind back", func() bool { return l.holders() == 1 })
	if !l.held(0) {
		t.Fatal("the lock was let go at once")
	}
	if err := m.Admit(pod("p")); err != nil {
		t.Error(err)
	}
	l.emit(true)
	next(t, f, "shutting down: true", "web ended", "critical ended")
	l.released(0)
	if err := m.Admit(pod("p")); err == nil || err.Error() != "NodeShutdown: Pod was rejected as the node is shutting down." {
		t.Errorf("admitted at the end: %v", err)
	}
	if want := []string{"shutdown fairlead delay"}; !slices.Equal(l.asked, want) || len(l.signal) > 0 {
		t.Errorf("asked for %q, signalled %q", l.asked, l.signal)
	}
}

func TestCalledOff(t *testing.T) {
	address := bus(t)
	l := serve(t, address, &logind{delay: time.Minute})
	f := &fake{pods: []*corev1.Pod{pod("slow", takes(time.Hour))}}
	m, stop := watch(t, address, f)
	eventually(t, "somebody holds logind back", func() bool { return l.holders() == 1 })
	l.emit(true)
	next(t, f, "shutting down: true")
	l.emit(false)
	next(t, f, "slow given up", "shutting down: false")
	eventually(t, "it is held back again", func() bool { return l.holders() == 2 })
	l.released(0)
	if err := m.Admit(pod("p")); err != nil {
		t.Error(err)
	}
	if !l.held(1) {
		t.Error("the second lock was let go")
	}
	stop()
	l.released(1)
}

// logind is started again, as by an update.
func TestAnotherLogind(t *testing.T) {
	address := bus(t)
	first := serve(t, address, &logind{delay: time.Minute})
	watch(t, address, &fake{})
	eventually(t, "somebody holds logind back", func() bool { return first.holders() == 1 })
	second := serve(t, address, &logind{delay: time.Minute})
	eventually(t, "the new one is held back", func() bool { return second.holders() == 1 })
	first.released(0)
}

func TestLengthen(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, after time.Duration
		written       bool
	}{
		{"long enough", 30 * time.Second, 30 * time.Second, false},
		{"made longer", 5 * time.Second, 30 * time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			address := bus(t)
			l := serve(t, address, &logind{delay: tt.before, after: tt.after})
			m, _ := watch(t, address, &fake{})
			eventually(t, "somebody holds logind back", func() bool { return l.holders() == 1 })
			text, err := os.ReadFile(filepath.Join(m.cfg.DropIns, dropIn))
			if (err == nil) != tt.written || tt.written && !strings.Contains(string(text), "[Login]\nInhibitDelayMaxSec=30\n") {
				t.Errorf("written: %s, %v", text, err)
			}
			if tt.written != slices.Equal(l.signal, []string{"systemd-logind.service main hangup"}) {
				t.Errorf("signalled %q", l.signal)
			}
		})
	}
}

// What keeps the node from changing it is told, with what logind has.
func TestCannotLengthen(t *testing.T) {
	address, file := bus(t), filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	serve(t, address, &logind{delay: 5 * time.Second, after: 5 * time.Second})
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	f := &fake{start: time.Now()}
	m := New(Config{Levels: []Level{{0, 30 * time.Second}}, DropIns: filepath.Join(file, "conf.d"), Log: slog.New(slog.DiscardHandler)}, f)
	m.lengthen(t.Context(), conn)
	if len(f.log) != 1 || !strings.Contains(f.log[0], "logind waits 5s at") || !strings.Contains(f.log[0], "not a directory") {
		t.Errorf("told %q", f.log)
	}
}

func TestNoBus(t *testing.T) {
	levels := []Level{{0, time.Second}}
	m := New(Config{Levels: levels, Bus: "unix:path=" + filepath.Join(t.TempDir(), "none"), Log: slog.New(slog.DiscardHandler)}, &fake{})
	if err := m.listen(t.Context()); err == nil || !strings.Contains(err.Error(), "reach the system's D-Bus") {
		t.Errorf("listening on nothing: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Run(ctx); err != nil {
		t.Error(err)
	}
}
