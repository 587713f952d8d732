package shimcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/taskapi"
)

// How much of what a shim's program prints is kept, and how much it may print
// before it is killed, in bytes.
const (
	quoteLimit = 4 << 10
	floodLimit = 16 << 20
)

var errFlood = fmt.Errorf("it printed more than %d MiB and was killed", floodLimit>>20)

// runShim runs the shim's program to its end and returns what it has printed.
func (o *options) runShim(ctx context.Context, sandbox string, input []byte, action string) ([]byte, error) {
	address := "unix://" + o.eventsSocket()
	args := []string{"-namespace", taskapi.Namespace, "-address", address, "-publish-binary", publisher(), "-id", o.id}
	if action == "delete" {
		args = append(args, "-bundle", o.bundle)
	}
	limited, kill := context.WithCancelCause(ctx)
	defer kill(nil)
	tooMuch := func() { kill(errFlood) }
	stdout, stderr := &speech{tooMuch: tooMuch}, &speech{tooMuch: tooMuch}
	cmd := exec.CommandContext(limited, o.shim, append(args, action)...)
	cmd.Dir = o.bundle
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "GOMAXPROCS=2", "MAX_SHIM_VERSION=3", "NAMESPACE=" + taskapi.Namespace,
		"TTRPC_ADDRESS=" + address, "GRPC_ADDRESS=" + address, shimMark(sandbox),
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second // for what it leaves with its output open
	err := cmd.Run()
	switch {
	case errors.Is(context.Cause(limited), errFlood):
		err = errFlood
	case ctx.Err() != nil:
		return nil, fmt.Errorf("shim %s did not end in time when it was called to %s: %w", o.shim, action, context.Cause(ctx))
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return stdout.kept, nil
	}
	said := strings.TrimSpace(string(stderr.kept))
	if said == "" {
		said = strings.TrimSpace(string(stdout.kept))
	}
	return nil, fmt.Errorf("shim %s, called to %s: %w: %s", o.shim, action, err, said)
}

// speech keeps the beginning of what a program prints, and tells when that is too
// much. It takes all of it, so that who writes goes on until it is killed.
type speech struct {
	kept    []byte
	total   int
	tooMuch func()
}

// Write never fails.
func (s *speech) Write(p []byte) (int, error) {
	s.kept = append(s.kept, p[:min(len(p), quoteLimit-len(s.kept))]...)
	if s.total += len(p); s.total > floodLimit {
		s.tooMuch()
	}
	return len(p), nil
}
