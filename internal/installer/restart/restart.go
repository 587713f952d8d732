// Package restart makes a CRI runtime read its configuration again, in the ways
// that nodes have for it.
//
// Whether it came back, and with what, is for others to see.
package restart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/inroot"
	"fairlead.run/internal/installer/process"
)

// Restarter has one runtime read its configuration again.
type Restarter interface {
	// Restart returns when that was asked for and accepted. Containers live on.
	Restart(ctx context.Context) error
	// String says what it does, for messages.
	String() string
}

// limit is how long a restart may take: systemd waits 90 s for a daemon to end.
const limit = 2 * time.Minute

// Systemd restarts a unit over D-Bus.
type Systemd struct {
	// Unit is such as containerd.service.
	Unit string
	// Bus is the socket of the system bus.
	Bus string
}

// String implements Restarter.
func (s Systemd) String() string { return "restart of " + s.Unit + " by systemd" }

// Restart implements Restarter. A start limit that was reached before is lifted,
// as otherwise systemd would refuse for good.
func (s Systemd) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := dbus.NewConnection(func() (*godbus.Conn, error) { return s.dial(ctx) })
	if err != nil {
		return fmt.Errorf("restart %s: connect to systemd at %s: %w (%w)", s.Unit, s.Bus, err, errdefs.ErrUnavailable)
	}
	defer conn.Close()
	state, err := conn.GetUnitPropertyContext(ctx, s.Unit, "ActiveState")
	if err != nil {
		return fmt.Errorf("restart %s: ask how it is: %w", s.Unit, err)
	}
	// It would start, and stop what conflicts with it.
	if is, _ := state.Value.Value().(string); is == "inactive" {
		return fmt.Errorf("restart %s: the unit is stopped, so it is not what runs the runtime; start it, or name another one by --unit: %w", s.Unit, errdefs.ErrPrecondition)
	}
	// One that has not failed cannot be reset, which does not matter.
	_ = conn.ResetFailedUnitContext(ctx, s.Unit)
	// A file of the unit may have been written or taken away a moment ago.
	stale, err := conn.GetUnitPropertyContext(ctx, s.Unit, "NeedDaemonReload")
	if err != nil {
		return fmt.Errorf("restart %s: ask whether its files have changed: %w", s.Unit, err)
	}
	if is, _ := stale.Value.Value().(bool); is {
		if err := conn.ReloadContext(ctx); err != nil {
			return fmt.Errorf("restart %s: have systemd read its files again: %w", s.Unit, err)
		}
	}
	done := make(chan string, 1)
	if _, err := conn.RestartUnitContext(ctx, s.Unit, "replace", done); err != nil {
		return fmt.Errorf("restart %s: %w", s.Unit, err)
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("restart %s: systemd says %s; journalctl -u %s says why: %w", s.Unit, result, s.Unit, errdefs.ErrUnavailable)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("restart %s: %w", s.Unit, ctx.Err())
	}
}

func (s Systemd) dial(ctx context.Context) (*godbus.Conn, error) {
	conn, err := godbus.Dial("unix:path="+s.Bus, godbus.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if err := conn.Auth([]godbus.Auth{godbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := conn.Hello(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// Hangup sends SIGHUP to CRI-O, which then takes handlers from its configuration.
type Hangup struct {
	// PID finds the process.
	PID func() (int, error)
	// Program is what its name has to be. containerd ends by this signal.
	Program string
}

// String implements Restarter.
func (h Hangup) String() string { return "SIGHUP to " + h.Program }

// Restart implements Restarter.
func (h Hangup) Restart(context.Context) error {
	pid, err := h.PID()
	if err != nil {
		return fmt.Errorf("send SIGHUP to %s: %w", h.Program, err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("send SIGHUP to %s, process %d: %w", h.Program, pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	if err != nil {
		return fmt.Errorf("send SIGHUP to %s, process %d: %w", h.Program, pid, err)
	}
	if got := strings.TrimSpace(string(name)); got != h.Program {
		return fmt.Errorf("send SIGHUP to %s: process %d is %s, which may end by that signal; choose another way to restart it: %w", h.Program, pid, got, errdefs.ErrPrecondition)
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGHUP, nil, 0); err != nil {
		return fmt.Errorf("send SIGHUP to %s, process %d: %w", h.Program, pid, err)
	}
	return nil
}

// Command runs a program of the node.
type Command struct {
	// Args are the program and its arguments.
	Args []string
	// Root is where the node's root directory is seen.
	Root string
}

// folders are where a program of a node is looked for that is named without one. What a
// process in a container has as PATH is about the container.
var folders = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// CommandOf is a program of the node with its arguments; root is where the node's root
// directory is seen. One that is not there is an error that wraps errdefs.ErrInvalidArgument.
func CommandOf(args []string, root string) (Command, error) {
	name, places := args[0], folders
	switch {
	case filepath.IsAbs(name):
		places = []string{"/"}
	case strings.Contains(name, "/"):
		return Command{}, fmt.Errorf("the command to restart the runtime, %s, is no absolute path: %w", name, errdefs.ErrInvalidArgument)
	}
	if filepath.Clean("/"+root) == "/" && !filepath.IsAbs(name) {
		if path, err := exec.LookPath(name); err == nil {
			places = []string{filepath.Dir(path)}
		}
	}
	for _, dir := range places {
		if path := filepath.Join(dir, name); process.Runnable(inroot.Join(root, path)) {
			return Command{Args: append([]string{path}, args[1:]...), Root: root}, nil
		}
	}
	return Command{}, fmt.Errorf("the command to restart the runtime, %s, is no program of this node; give its absolute path: %w", name, errdefs.ErrInvalidArgument)
}

// String implements Restarter.
func (c Command) String() string { return "command " + strings.Join(c.Args, " ") }

// Restart implements Restarter.
func (c Command) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	if c.Root != "" && filepath.Clean(c.Root) != "/" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.Root}
	}
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second // for what it has started, and which holds its output
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) { // by which it has ended well itself
		return fmt.Errorf("run %s to restart the runtime: %w: %s", strings.Join(c.Args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// None leaves it to somebody else, who has to do it soon.
type None struct{}

// String implements Restarter.
func (None) String() string { return "no restart: somebody else is expected to do it" }

// Restart implements Restarter.
func (None) Restart(context.Context) error { return nil }

// The ways by name.
const (
	Auto         = "auto"
	BySystemd    = "systemd"
	BySighup     = "sighup"
	ByCommand    = "command"
	BySomebody   = "none"
	allTheWays   = Auto + ", " + BySystemd + ", " + BySighup + ", " + ByCommand + " or " + BySomebody
	commandFirst = "give the program and its arguments by --restart-command, once for each word"
)

// Check says what is wrong with a way and its command, for people.
func Check(method string, command []string) error {
	switch method {
	case "", Auto, BySystemd, BySighup, BySomebody:
		if len(command) > 0 {
			return fmt.Errorf("a command is run only with --restart %s: %w", ByCommand, errdefs.ErrInvalidArgument)
		}
	case ByCommand:
		if len(command) == 0 {
			return fmt.Errorf("--restart %s needs a command; %s: %w", ByCommand, commandFirst, errdefs.ErrInvalidArgument)
		}
	default:
		return fmt.Errorf("%q is no way to restart a runtime; use %s: %w", method, allTheWays, errdefs.ErrInvalidArgument)
	}
	return nil
}
