package oci

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime/oci/mark"
	"fairlead.run/internal/runtime/oci/owner"
)

var (
	execPrepared  = failpoint.Register("exec.prepared")
	execForgotten = failpoint.Register("exec.forgotten")
)

const sigKill = unix.SIGKILL

// execPrefix begins the ids of exec processes, so that none can be that of a
// container. instance is of this run of the daemon: what an earlier one has
// started belongs to nobody any more.
const execPrefix = "exec."

var instance = randomHex(4)

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails: the runtime ends the process instead
	return hex.EncodeToString(b)
}

func newExecID() string { return execPrefix + instance + "." + randomHex(8) }

// IsOwnExec tells whether this run of the daemon started the exec.
func IsOwnExec(id string) bool { return strings.HasPrefix(id, execPrefix+instance+".") }

// Exec runs one more process in a running container, with everything but the
// command as its first process has it.
func (h *Handler) Exec(ctx context.Context, e pod.ExecRequest) (pod.Exec, error) {
	h.Warm()
	x, err := h.exec(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("exec in container %s with handler %s: %w", e.Container.ID, h.def.Name, err)
	}
	return x, nil
}

func (h *Handler) exec(ctx context.Context, e pod.ExecRequest) (*execution, error) {
	if len(e.Command) == 0 {
		return nil, fmt.Errorf("there is no command: %w", errdefs.ErrInvalidArgument)
	}
	bundle := h.folder(string(e.Container.ID))
	has, err := readAs[running](bundle)
	if err != nil {
		return nil, err
	}
	process, err := execProcess(has.Process, e)
	if err != nil {
		return nil, err
	}
	limit, err := timeout(ctx, execTimeout)
	if err != nil {
		return nil, err
	}
	marked := mark.Give(process)
	x := &execution{monitor: h.cfg.Monitor, id: newExecID()}
	x.folder = filepath.Join(bundle, "exec", x.id)
	switch {
	case h.tool.adapter != nil:
		x.inside = func(ctx context.Context) { h.killExecuted(ctx, string(e.Container.ID), x.id) }
	case h.sandboxed():
		x.inside = func(ctx context.Context) { h.killInside(ctx, string(e.Container.ID), x) }
	}
	if err := writeProcess(x.folder, process); err != nil {
		return nil, errors.Join(err, os.RemoveAll(x.folder))
	}
	if err := failpoint.Hit(execPrepared); err != nil {
		return nil, errors.Join(err, os.RemoveAll(x.folder))
	}
	log := filepath.Join(x.folder, "runtime.log")
	req, err := h.execRequest(x, string(e.Container.ID), log, e.TTY)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(x.folder))
	}
	req.Timeout, req.Mark, req.MarkAnywhere = limit, marked, h.tool.adapter != nil
	if h.tool.adapter == nil && !h.sandboxed() { // what stands in for a process elsewhere is to outlive it
		req.OOMScoreAdj = process.OOMScoreAdj // which crun gives to containers alone
	}
	stdio := e.Stdio
	if e.TTY {
		stdio = [3]*os.File{}
	}
	if err := owner.Give(stdio, has.Linux.Owner(process.User)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(x.folder))
	}
	if err = h.askExec(ctx, x, req, stdio); err == nil {
		return x, nil
	}
	if x.inside != nil { // it may have begun before it was given up
		x.inside(context.WithoutCancel(ctx))
	}
	if said := readLog(log); said != "" && !errors.Is(err, errdefs.ErrExhausted) && !errors.Is(err, errdefs.ErrDeadline) && ctx.Err() == nil {
		err = explain(said, process.Args, process.Env)
	}
	return nil, errors.Join(because(ctx, err), x.drop(ctx))
}

// askExec lets the monitor run an exec's command, which is killed when ctx ends.
func (h *Handler) askExec(ctx context.Context, x *execution, req monitorv1.ExecRequest, stdio [3]*os.File) (err error) {
	defer h.giveUpWith(ctx, x.id)()
	bounded, cancel := unhurried(ctx, req.Timeout)
	defer cancel()
	_, x.tty, err = h.cfg.Monitor.Exec(bounded, req, stdio)
	return err
}

func (h *Handler) execRequest(x *execution, container, log string, tty bool) (monitorv1.ExecRequest, error) {
	pidFile := filepath.Join(x.folder, "pid")
	args := []string{"exec", "--detach", "--process", filepath.Join(x.folder, "process.json"), "--pid-file", pidFile}
	if tty {
		args = append(args, "--console-socket", monitorv1.ConsoleSocket)
	}
	if h.sandboxed() {
		args = append(args, "--internal-pid-file", filepath.Join(x.folder, insidePIDFile))
	}
	argv, err := h.argv(log, append(args, container)...)
	return monitorv1.ExecRequest{
		ID:      x.id,
		Command: argv,
		Sealed:  h.sealed(),
		Env:     environ(),
		PIDFile: pidFile,
		TTY:     tty,
	}, err
}

// execProcess is the container's own process with another command.
func execProcess(p *specs.Process, e pod.ExecRequest) (*specs.Process, error) {
	if p == nil {
		return nil, fmt.Errorf("the container's specification has no process: %w", errdefs.ErrInternal)
	}
	p.Args, p.CommandLine = e.Command, ""
	p.Terminal, p.ConsoleSize = e.TTY, nil
	hasTerm := slices.ContainsFunc(p.Env, func(v string) bool { return strings.HasPrefix(v, "TERM=") })
	if e.TTY && !hasTerm {
		p.Env = append(p.Env, "TERM=xterm")
	}
	return p, nil
}

func writeProcess(folder string, p *specs.Process) error {
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode the process: %w", err)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("make the exec's folder: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "process.json"), data, 0o600); err != nil {
		return fmt.Errorf("write the process: %w", err)
	}
	return nil
}

// execution is a process that Exec has started.
type execution struct {
	monitor Monitor
	id      string
	folder  string
	tty     *os.File
	inside  func(context.Context) // kills it where the host cannot; nil where it can
}

// Wait implements pod.Exec. It outlasts restarts of the monitor.
func (x *execution) Wait(ctx context.Context) (pod.Exit, error) {
	exit, err := wait(ctx, x.monitor, x.id)
	if err != nil {
		return pod.Exit{}, fmt.Errorf("wait for exec %s: %w", x.id, err)
	}
	return exit, nil
}

// waiter is what waiting needs of the monitor.
type waiter interface {
	Wait(ctx context.Context, id string) (monitorv1.Exit, error)
}

// waitAttempts is how often in a row a monitor may be away before waiting for
// it is given up; each attempt includes the client's own patience.
const waitAttempts = 5

// wait waits for a process to end. A monitor that is restarted in the meantime
// knows the process again.
func wait(ctx context.Context, m waiter, id string) (pod.Exit, error) {
	for failures := 0; ; {
		begin := time.Now()
		exit, err := m.Wait(ctx, id)
		if err == nil {
			return exitOf(exit), nil
		}
		if time.Since(begin) > time.Second {
			failures = 0 // it was there for a while
		}
		if failures++; failures >= waitAttempts || ctx.Err() != nil || !errors.Is(err, errdefs.ErrUnavailable) {
			return pod.Exit{}, err
		}
		select {
		case <-ctx.Done():
			return pod.Exit{}, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Kill implements pod.Exec.
func (x *execution) Kill(ctx context.Context) error {
	if x.inside != nil {
		x.inside(ctx)
	}
	if err := ignoreNotFound(x.monitor.Signal(ctx, x.id, sigKill, true)); err != nil {
		return fmt.Errorf("kill exec %s: %w", x.id, err)
	}
	return nil
}

// TTY implements pod.Exec.
func (x *execution) TTY() *os.File { return x.tty }

// Close implements pod.Exec. A process that still lives is killed.
func (x *execution) Close(ctx context.Context) error {
	if err := x.drop(ctx); err != nil {
		return fmt.Errorf("forget exec %s: %w", x.id, err)
	}
	return nil
}

// drop ends the process if need be, and removes what is known of it.
func (x *execution) drop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := x.monitor.Forget(ctx, x.id)
	if errors.Is(err, errdefs.ErrPrecondition) {
		err = x.Kill(ctx)
		if err == nil {
			_, err = wait(ctx, x.monitor, x.id)
		}
		if err == nil {
			err = x.monitor.Forget(ctx, x.id)
		}
	}
	return errors.Join(ignoreNotFound(err), failpoint.Hit(execForgotten), os.RemoveAll(x.folder))
}

// exitOf translates how a process ended.
func exitOf(e monitorv1.Exit) pod.Exit {
	return pod.Exit{
		Code:       int32(e.Code),
		Signal:     e.Signal,
		FinishedAt: e.FinishedAt,
		OOMKilled:  e.OOMKilled,
		Found:      e.Found,
		Lost:       e.Lost,
	}
}
