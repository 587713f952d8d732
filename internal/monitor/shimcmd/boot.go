package shimcmd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/taskapi"
)

// quoteLimit bounds what is kept of what a shim prints, in bytes.
const quoteLimit = 4 << 10

// boot starts the shim and returns where it listens. Shims since containerd 2.3
// read a message on standard input that older ones may stumble over; these get
// only their options.
func (t *task) boot(ctx context.Context) (taskapi.Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	program, err := os.Executable()
	if err != nil {
		return taskapi.Endpoint{}, err
	}
	told := taskapi.Bootstrap{ID: t.id, Events: "unix://" + t.eventsSocket(), Publisher: program, Options: t.settings}
	out, err := t.runShim(ctx, t.id, told.Encode(), "start")
	if err != nil && ctx.Err() == nil {
		var old error
		if out, old = t.runShim(ctx, t.id, t.settings.Encode(), "start"); old != nil {
			return taskapi.Endpoint{}, err
		}
	} else if err != nil {
		return taskapi.Endpoint{}, err
	}
	return taskapi.ParseStarted(out)
}

// runShim runs the shim's program to its end and returns what it has printed.
func (o *options) runShim(ctx context.Context, sandbox string, input []byte, action string) ([]byte, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	address := "unix://" + o.eventsSocket()
	args := []string{"-namespace", taskapi.Namespace, "-address", address, "-publish-binary", program, "-id", o.id}
	if action == "delete" {
		args = append(args, "-bundle", o.bundle)
	}
	stdout, stderr := &head{max: quoteLimit}, &head{max: quoteLimit}
	cmd := exec.CommandContext(ctx, o.shim, append(args, action)...)
	cmd.Dir = o.bundle
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "GOMAXPROCS=2", "MAX_SHIM_VERSION=3", "NAMESPACE=" + taskapi.Namespace,
		"TTRPC_ADDRESS=" + address, "GRPC_ADDRESS=" + address, shimMark(sandbox),
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second // for what it leaves with its output open
	err = cmd.Run()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return stdout.Bytes(), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("shim %s did not end within %s when it was called to %s", o.shim, bootLimit, action)
	}
	said := strings.TrimSpace(stderr.String())
	if said == "" {
		said = strings.TrimSpace(stdout.String())
	}
	return nil, fmt.Errorf("shim %s, called to %s: %w: %s", o.shim, action, err, said)
}

// head keeps the beginning of what is written to it.
type head struct {
	bytes.Buffer
	max int
}

// Write never fails, so that who writes goes on.
func (h *head) Write(p []byte) (int, error) {
	h.Buffer.Write(p[:min(len(p), max(0, h.max-h.Len()))])
	return len(p), nil
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
