package shutdown

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"fairlead.run/internal/hostpath"
)

// Names of logind on the bus.
const (
	login       = "org.freedesktop.login1"
	loginPath   = dbus.ObjectPath("/org/freedesktop/login1")
	loginSide   = login + ".Manager"
	prepare     = "PrepareForShutdown"
	maxDelay    = "InhibitDelayMaxUSec"
	systemd     = "org.freedesktop.systemd1"
	systemdPath = dbus.ObjectPath("/org/freedesktop/systemd1")
	dropIn      = "99-fairlead.conf"

	ownerChanged = "NameOwnerChanged"
	busSide      = "org.freedesktop.DBus"
)

// How long logind may take to read its settings again, and a call to be answered.
const (
	reloadTime = 5 * time.Second
	reloadLook = 100 * time.Millisecond
	callTime   = 30 * time.Second
)

// listen holds logind back and hears from it, until ctx or the connection ends.
func (m *Manager) listen(ctx context.Context) error {
	conn, err := m.connect(ctx)
	if err != nil {
		return fmt.Errorf("reach the system's D-Bus: %w", err)
	}
	defer func() { _ = conn.Close() }()
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	for _, match := range [][]dbus.MatchOption{
		{dbus.WithMatchInterface(loginSide), dbus.WithMatchMember(prepare), dbus.WithMatchSender(login)},
		{dbus.WithMatchInterface(busSide), dbus.WithMatchMember(ownerChanged), dbus.WithMatchArg(0, login)},
	} {
		if err := conn.AddMatchSignalContext(ctx, match...); err != nil {
			return fmt.Errorf("follow the signals of logind: %w", err)
		}
	}
	m.lengthen(ctx, conn)
	lock, err := inhibit(ctx, conn)
	if err != nil {
		return err
	}
	h := &holder{m: m, conn: conn, lock: lock}
	defer h.finish()
	m.cfg.Log.Info("a shutdown of this node waits for pods", "at most", total(m.cfg.Levels).String())
	for {
		select {
		case <-ctx.Done():
			return nil
		case s, open := <-signals:
			if !open {
				return errors.New("the connection to the system's D-Bus has ended")
			}
			if err := h.hear(ctx, s); err != nil {
				return err
			}
		}
	}
}

func (m *Manager) connect(ctx context.Context) (*dbus.Conn, error) {
	if m.cfg.Bus == "" {
		return dbus.ConnectSystemBus(dbus.WithContext(ctx))
	}
	return dbus.Connect(m.cfg.Bus, dbus.WithContext(ctx))
}

// inhibit asks logind to wait for as long as the file is open.
func inhibit(ctx context.Context, conn *dbus.Conn) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var fd dbus.UnixFD
	call := conn.Object(login, loginPath).CallWithContext(ctx, loginSide+".Inhibit", 0, "shutdown", "fairlead", "Pods are given time to end", "delay")
	if err := call.Store(&fd); err != nil {
		return nil, fmt.Errorf("ask logind to wait at a shutdown: %w", err)
	}
	return os.NewFile(uintptr(fd), "inhibitor"), nil
}

// lengthen makes logind wait for long enough. It waits for 5 s at most otherwise,
// and what cannot be changed is only said: some time is better than none.
func (m *Manager) lengthen(ctx context.Context, conn *dbus.Conn) {
	wanted := total(m.cfg.Levels)
	has, err := delay(ctx, conn)
	if err == nil && has >= wanted {
		return
	}
	if err == nil {
		now := time.Duration(0)
		if now, err = m.rewrite(ctx, conn, wanted); err == nil {
			has = now
		}
	}
	if err != nil || has < wanted {
		m.cfg.Log.Warn("logind does not wait for as long as pods may take; set InhibitDelayMaxSec in its configuration", "waits", has.String(), "pods", wanted.String(), "error", err)
		m.node.Event("ShutdownTooShort", tooShort(has, wanted, err))
	}
}

// tooShort says how long logind waits, zero if that is not known, and why it is not longer.
func tooShort(has, wanted time.Duration, err error) string {
	waits := "waits " + has.String()
	if has == 0 {
		waits = "does not say how long it waits"
	}
	text := fmt.Sprintf("logind %s at a shutdown, and pods may take %s; set InhibitDelayMaxSec in its configuration", waits, wanted)
	if err != nil {
		text += ", as the node could not: " + err.Error() + hostpath.Advice(err)
	}
	return text
}

func delay(ctx context.Context, conn *dbus.Conn) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var v dbus.Variant
	call := conn.Object(login, loginPath).CallWithContext(ctx, busSide+".Properties.Get", 0, loginSide, maxDelay)
	if err := call.Store(&v); err != nil {
		return 0, fmt.Errorf("ask logind how long it waits: %w", err)
	}
	us, ok := v.Value().(uint64)
	if !ok {
		return 0, fmt.Errorf("ask logind how long it waits: it says %v", v)
	}
	return time.Duration(us) * time.Microsecond, nil
}

// rewrite changes the setting for this boot, and says what logind then has.
func (m *Manager) rewrite(ctx context.Context, conn *dbus.Conn, wanted time.Duration) (time.Duration, error) {
	text := fmt.Sprintf("# Written by Fairlead, for the shutdown of its pods.\n[Login]\nInhibitDelayMaxSec=%d\n", int64((wanted+time.Second-1)/time.Second))
	file := filepath.Join(m.cfg.DropIns, dropIn)
	if err := os.MkdirAll(m.cfg.DropIns, 0o755); err != nil {
		return 0, fmt.Errorf("tell logind how long to wait: %w", err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return 0, fmt.Errorf("tell logind how long to wait: %w", err)
	}
	call, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	const hangUp = int32(1) // logind reads its settings again
	if err := conn.Object(systemd, systemdPath).CallWithContext(call, systemd+".Manager.KillUnit", 0, "systemd-logind.service", "main", hangUp).Err; err != nil {
		return 0, fmt.Errorf("make logind read %s: %w", file, err)
	}
	for end := time.Now().Add(reloadTime); ; {
		has, err := delay(ctx, conn)
		if err != nil || has >= wanted || time.Now().After(end) {
			return has, err
		}
		select {
		case <-ctx.Done():
			return has, context.Cause(ctx)
		case <-time.After(reloadLook):
		}
	}
}

// holder holds logind back, and ends pods when it says so.
type holder struct {
	m    *Manager
	conn *dbus.Conn

	mu   sync.Mutex
	lock *os.File // nil once the shutdown may go on

	stop   context.CancelFunc // of the pods' end that goes on; nil if none does
	ending sync.WaitGroup
}

// hear takes one signal.
func (h *holder) hear(ctx context.Context, s *dbus.Signal) error {
	switch s.Name {
	case busSide + "." + ownerChanged:
		// Started again, logind knows nothing. Pods that have ended need no more time.
		if len(s.Body) == 3 && s.Body[2] != "" && h.holds() {
			h.m.lengthen(ctx, h.conn)
			return h.hold(ctx)
		}
	case loginSide + "." + prepare:
		begins, ok := false, false
		if len(s.Body) == 1 {
			begins, ok = s.Body[0].(bool)
		}
		switch {
		case !ok:
			return fmt.Errorf("logind's signal %s says %v", prepare, s.Body)
		case begins:
			h.begin(ctx)
		default:
			h.m.cfg.Log.Info("the shutdown was called off")
			h.halt()
			h.m.set(false)
			return h.hold(ctx)
		}
	}
	return nil
}

// begin ends pods beside the signals, of which one may call it off.
func (h *holder) begin(ctx context.Context) {
	if h.stop != nil {
		return
	}
	h.m.set(true)
	ctx, h.stop = context.WithCancel(ctx)
	h.ending.Go(func() {
		h.m.end(ctx)
		h.release()
	})
}

func (h *holder) halt() {
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
	h.ending.Wait()
}

// hold takes the place of what held logind back before.
func (h *holder) hold(ctx context.Context) error {
	lock, err := inhibit(ctx, h.conn)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lock != nil {
		_ = h.lock.Close()
	}
	h.lock = lock
	return nil
}

func (h *holder) holds() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lock != nil
}

// release lets the shutdown go on.
func (h *holder) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lock != nil {
		_ = h.lock.Close()
		h.lock = nil
	}
}

func (h *holder) finish() {
	h.halt()
	h.release()
}
