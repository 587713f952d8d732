package restart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/godbus/dbus/v5"

	"fairlead.run/internal/errdefs"
)

const (
	systemdPath = dbus.ObjectPath("/org/freedesktop/systemd1")
	unitPath    = systemdPath + "/unit/containerd_2eservice"
)

// manager is the test as systemd, on a bus of its own.
type manager struct {
	result string // of the job; "" for one that does not end
	stale  bool   // the files of the unit have changed
	state  string // of the unit; active if empty
	onJob  func() // what happens meanwhile

	socket string
	conn   *dbus.Conn

	mu    sync.Mutex
	asked []string
}

// serve has the manager on a bus; what it is to do is set before.
func (m *manager) serve(t *testing.T) {
	t.Helper()
	program, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("dbus-daemon is not here; Debian's package is dbus")
	}
	m.socket = filepath.Join(t.TempDir(), "bus")
	config := filepath.Join(t.TempDir(), "bus.conf")
	text := `<busconfig><type>system</type><listen>unix:path=` + m.socket + `</listen><auth>EXTERNAL</auth>
<policy context="default"><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/></policy></busconfig>`
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	ready, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ready.Close() }()
	bus := exec.Command(program, "--nofork", "--nopidfile", "--nosyslog", "--print-address=3", "--config-file="+config)
	bus.ExtraFiles = []*os.File{out}
	bus.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // if this process is killed
	runtime.LockOSThread()                                             // as it is this thread that counts
	err = bus.Start()
	_ = out.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = bus.Process.Signal(syscall.SIGTERM)
		_ = bus.Wait()
		runtime.UnlockOSThread()
	})
	if n, err := ready.Read(make([]byte, 1)); n == 0 { // it listens
		t.Fatalf("the bus has ended: %v", err)
	}
	if m.conn, err = dbus.Connect("unix:path=" + m.socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.conn.Close() })
	err = errors.Join(m.conn.Export(m, systemdPath, "org.freedesktop.systemd1.Manager"), m.conn.Export(properties{m}, unitPath, "org.freedesktop.DBus.Properties"))
	if err == nil {
		_, err = m.conn.RequestName("org.freedesktop.systemd1", 0)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (m *manager) note(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, fmt.Sprintf(format, args...))
}

// Subscribe is called by clients that want signals.
func (m *manager) Subscribe() *dbus.Error { return nil }

// ResetFailedUnit lifts a start limit, which there is none of.
func (m *manager) ResetFailedUnit(unit string) *dbus.Error {
	m.note("reset %s", unit)
	return dbus.MakeFailedError(errors.New("not failed"))
}

// Reload reads the files of units.
func (m *manager) Reload() *dbus.Error {
	m.note("reload")
	return nil
}

// RestartUnit begins a job, which is over at once or never.
func (m *manager) RestartUnit(unit, mode string) (dbus.ObjectPath, *dbus.Error) {
	m.note("restart %s %s", unit, mode)
	job := systemdPath + "/job/1"
	if m.result != "" {
		_ = m.conn.Emit(systemdPath, "org.freedesktop.systemd1.Manager.JobRemoved", uint32(1), job, unit, m.result)
	}
	if m.onJob != nil {
		m.onJob()
	}
	return job, nil
}

type properties struct{ *manager }

// Get is one of the unit's.
func (p properties) Get(_, name string) (dbus.Variant, *dbus.Error) {
	if name == "ActiveState" {
		return dbus.MakeVariant(cmp.Or(p.state, "active")), nil
	}
	return dbus.MakeVariant(name == "NeedDaemonReload" && p.stale), nil
}

func TestSystemd(t *testing.T) {
	const unit = "containerd.service"
	for name, c := range map[string]struct {
		result string
		stale  bool
		want   string
		asked  []string
	}{
		"it comes back":           {"done", false, "", []string{"reset " + unit, "restart " + unit + " replace"}},
		"its files have changed":  {"done", true, "", []string{"reset " + unit, "reload", "restart " + unit + " replace"}},
		"it does not come back":   {"failed", false, "systemd says failed; journalctl -u " + unit, []string{"reset " + unit, "restart " + unit + " replace"}},
		"somebody stops it again": {"canceled", false, "systemd says canceled", []string{"reset " + unit, "restart " + unit + " replace"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &manager{result: c.result, stale: c.stale}
			m.serve(t)
			err := Systemd{Unit: unit, Bus: m.socket}.Restart(t.Context())
			if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, errdefs.ErrUnavailable) || !strings.Contains(err.Error(), c.want)) {
				t.Error(err)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			if !slices.Equal(m.asked, c.asked) {
				t.Errorf("systemd was asked to %q, want %q", m.asked, c.asked)
			}
		})
	}
}

// A restart that does not end is given up with the context.
func TestSystemdThatHangs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := &manager{onJob: cancel}
	m.serve(t)
	if err := (Systemd{Unit: "containerd.service", Bus: m.socket}).Restart(ctx); err == nil {
		t.Error("a restart that did not end is one")
	}
}

// A unit that is stopped is not started.
func TestSystemdThatIsStopped(t *testing.T) {
	m := &manager{result: "done", state: "inactive"}
	m.serve(t)
	if err := (Systemd{Unit: "containerd.service", Bus: m.socket}).Restart(t.Context()); !errors.Is(err, errdefs.ErrPrecondition) || !strings.Contains(err.Error(), "--unit") {
		t.Error(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.asked) > 0 {
		t.Errorf("systemd was asked to %q", m.asked)
	}
}

func TestSystemdThatIsAbsent(t *testing.T) {
	bus := filepath.Join(t.TempDir(), "none")
	if err := (Systemd{Unit: "a.service", Bus: bus}).Restart(t.Context()); !errors.Is(err, errdefs.ErrUnavailable) || !strings.Contains(err.Error(), bus) {
		t.Error(err)
	}
}
