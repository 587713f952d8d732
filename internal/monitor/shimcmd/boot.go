package shimcmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/taskapi"
)

// boot starts the shim and returns where it listens. Shims since containerd 2.3
// read a message on standard input that older ones may stumble over; these get
// only their options.
func (t *task) boot(ctx context.Context) (taskapi.Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	told := t.bootstrap()
	out, err := t.runShim(ctx, t.id, told.Encode(), "start")
	if err != nil && ctx.Err() == nil && !errors.Is(err, errFlood) {
		if printed, old := t.runShim(ctx, t.id, t.settings.Encode(), "start"); old == nil {
			out, err = printed, nil
		}
	}
	if err != nil {
		return taskapi.Endpoint{}, err
	}
	return taskapi.ParseStarted(out)
}

// bootstrap is what the shim of this pod is told.
func (o *options) bootstrap() taskapi.Bootstrap {
	return taskapi.Bootstrap{ID: o.id, Events: "unix://" + o.eventsSocket(), Publisher: publisher(), Sockets: o.events, Options: o.settings}
}

// publisher is the program that shims run for an event.
func publisher() string {
	program, _ := os.Executable() // it only fails without /proc, as everything does
	return program
}

// eventsSocket is where the shim of this pod sends its events. Its name is a hash
// because the address of a socket holds 107 bytes.
func (o *options) eventsSocket() string {
	sum := sha256.Sum256([]byte(o.id))
	return filepath.Join(o.events, hex.EncodeToString(sum[:8]))
}

// openEvents listens for events for as long as this process lives.
func (t *task) openEvents() error {
	if err := os.MkdirAll(t.options.events, 0o700); err != nil {
		return err
	}
	path := t.eventsSocket()
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listen for the shim's events: %w", err)
	}
	go taskapi.AcceptEvents(l)
	return nil
}

// logLimit bounds the file with what a shim logs, in bytes; then it begins anew.
const logLimit = 256 << 10

// openLog makes the FIFO "log" in the bundle, in which shims write what they log,
// and copies that to the file shim.log beside it.
func (t *task) openLog() error {
	path := filepath.Join(t.bundle, "log")
	_ = os.Remove(path)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return fmt.Errorf("make FIFO %s: %w", path, err)
	}
	from, err := os.OpenFile(path, os.O_RDWR, 0) // never at its end
	if err != nil {
		return err
	}
	to, err := os.OpenFile(filepath.Join(t.bundle, "shim.log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return errors.Join(err, from.Close())
	}
	go func() {
		buf := make([]byte, 4096)
		for kept := 0; ; {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			if kept += n; kept > logLimit {
				kept = n
				// Nothing to be done where it fails: it is only a log.
				_ = to.Truncate(0)
				_, _ = to.Seek(0, 0)
			}
			_, _ = to.Write(buf[:n])
		}
	}()
	return nil
}
