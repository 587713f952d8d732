package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime"
	"fairlead.run/internal/runtime/oci/criu"
	"fairlead.run/internal/runtime/oci/disk"
)

// Bounds of runtime commands. A node that is busy with hundreds of pods may
// need seconds for what takes milliseconds otherwise.
const (
	startTimeout  = 2 * time.Minute
	execTimeout   = time.Minute
	deleteTimeout = 30 * time.Second
	sayTimeout    = 10 * time.Second // of what a runtime is told in the course of that
	updateTimeout = 30 * time.Second
)

// Handler runs containers by one OCI runtime. It holds no state: a new one for
// the same directories goes on where the old one was.
type Handler struct {
	cfg  Config
	def  runtime.Definition
	info func() pod.HandlerInfo
	tool tool
}

// Info describes the handler as it was last observed.
func (h *Handler) Info() pod.HandlerInfo { return h.info() }

// sealed says whether the runtime is run from a copy in memory.
func (h *Handler) sealed() bool { return copies(h.runtime()) }

// copies says whether a runtime makes a copy of itself each time it is not run from
// one. That takes crun long, and leaves a mount in /tmp if it is killed meanwhile.
func copies(runtime string) bool { return runtime == "crun" }

// runtime is what the program calls itself; empty in a trial, before that is known.
func (h *Handler) runtime() string {
	if h.info == nil {
		return h.tool.runtime
	}
	return h.info().Runtime
}

// run runs a command of a handler that is known, and returns its output.
func (h *Handler) run(ctx context.Context, args ...string) ([]byte, error) {
	argv, err := h.argv("", args...)
	if err != nil {
		return nil, err
	}
	return runFrom(ctx, h.from(), argv)
}

// argv is tool.argv for a handler that is known.
func (h *Handler) argv(log string, args ...string) ([]string, error) {
	t := h.tool
	t.flags = flagsOf(h.runtime(), h.def.Args)
	return t.argv(log, args...)
}

// from is where the runtime is executed from.
func (h *Handler) from() from { return h.cfg.from(h.runtime()) }

func (c *Config) from(runtime string) from {
	if copies(runtime) {
		return c.programs.Run
	}
	return asItIs
}

// ioFolder is where the FIFOs of a container are, in its bundle.
const ioFolder = "io"

// folder is the bundle of a container.
func (h *Handler) folder(id string) string { return filepath.Join(h.cfg.StateDir, "containers", id) }

// Warm is told that a process will be started soon, and returns at once.
func (h *Handler) Warm() { h.cfg.warmth.Warm() }

// keepWarm is Warm, for as long as a start may take, until the returned function is
// called. runc and crun join cgroups once, and soon.
func (h *Handler) keepWarm() (end func()) {
	if h.sandboxed() {
		return h.cfg.warmth.Keep()
	}
	h.Warm()
	return func() {}
}

// Start runs the bundle's process. If it runs already, or has run and ended
// since, that one is returned. When it fails, nothing is left of it.
func (h *Handler) Start(ctx context.Context, s pod.StartRequest) (pod.RunningProcess, error) {
	defer h.keepWarm()()
	started, err := h.start(ctx, s)
	if err != nil {
		return pod.RunningProcess{}, fmt.Errorf("start container %s with handler %s: %w", s.ID, h.def.Name, err)
	}
	return h.running(pod.RunningProcess{PID: started.PID, StartTime: started.StartTime}, s.ID), nil
}

func (h *Handler) start(ctx context.Context, s pod.StartRequest) (monitorv1.Started, error) {
	if err := os.MkdirAll(h.tool.root, 0o700); err != nil {
		return monitorv1.Started{}, fmt.Errorf("make the runtime's state directory: %w", err)
	}
	req, log, err := h.startRequest(s)
	if err != nil {
		return monitorv1.Started{}, err
	}
	if req.Timeout, err = timeout(ctx, startTimeout); err != nil {
		return monitorv1.Started{}, err
	}
	key, err := h.cfg.filters.Give(s.Bundle.Path, h.info().Path+" "+h.info().Version)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return monitorv1.Started{}, err
	}
	started, err := h.askStart(ctx, req)
	if errors.Is(err, errdefs.ErrAlreadyExists) {
		return h.startedBefore(ctx, s.ID, err)
	}
	if err == nil {
		h.cfg.filters.Take(key, filepath.Join(h.tool.root, s.ID))
		h.restored(s)
		return started, nil
	}
	if ctx.Err() == nil && (isThere.MatchString(readLog(log)) || errors.Is(err, errdefs.ErrUnavailable)) {
		// The runtime knows a container that the monitor does not, or may: what is
		// left of a start that a crash of the monitor cut off, now or earlier.
		// Nobody was told of it.
		if started, err = h.startAfresh(ctx, s.ID, req); err == nil {
			return started, nil
		}
	}
	return monitorv1.Started{}, h.failed(ctx, s, log, err)
}

// askStart lets the monitor run a start's command, which is killed when ctx ends.
func (h *Handler) askStart(ctx context.Context, req monitorv1.StartRequest) (monitorv1.Started, error) {
	defer h.giveUpWith(ctx, req.ID)()
	bounded, cancel := unhurried(ctx, req.Timeout)
	defer cancel()
	return h.cfg.Monitor.Start(bounded, req)
}

// timeout is what a runtime command may take: until ctx ends, and limit at most.
func timeout(ctx context.Context, limit time.Duration) (time.Duration, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if deadline, ok := ctx.Deadline(); ok {
		// Zero would stand for the monitor's default.
		limit = max(min(limit, time.Until(deadline)), time.Millisecond)
	}
	return limit, nil
}

// unhurried is for a request to the monitor that bounds itself by a timeout: it
// is not given up before the monitor has, because what the monitor does after
// its caller has left would be nobody's.
func unhurried(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), timeout+15*time.Second)
}

func (h *Handler) startRequest(s pod.StartRequest) (monitorv1.StartRequest, string, error) {
	log := filepath.Join(s.Bundle.Path, "runtime.log")
	// Otherwise the message of an earlier failure would explain this one.
	if err := os.Remove(log); err != nil && !errors.Is(err, os.ErrNotExist) {
		return monitorv1.StartRequest{}, "", fmt.Errorf("remove an old log of the runtime: %w", err)
	}
	pidFile := filepath.Join(s.Bundle.Path, "pid")
	args := []string{"run", "--detach", "--bundle", s.Bundle.Path, "--pid-file", pidFile}
	env := environ()
	if s.Restore != "" {
		var err error
		if args, err = restoreArgs(s, pidFile); err != nil {
			return monitorv1.StartRequest{}, "", err
		}
		env = append(env, criu.RestoreEnv(s.Bundle.Path))
	}
	if s.TTY {
		args = append(args, "--console-socket", monitorv1.ConsoleSocket)
	}
	argv, err := h.argv(log, append(args, s.ID)...)
	if err != nil {
		return monitorv1.StartRequest{}, "", err
	}
	// What is wrong with a bundle the runtime says best.
	has, cgroup, err := h.onHost(s.Bundle.Path)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.As(err, new(*brokenBundle)) {
		return monitorv1.StartRequest{}, "", err
	}
	req := monitorv1.StartRequest{
		ID:         s.ID,
		Command:    argv,
		Sealed:     h.sealed(),
		Env:        env,
		PIDFile:    pidFile,
		Cgroup:     cgroup,
		IODir:      filepath.Join(s.Bundle.Path, ioFolder),
		Label:      has.Linux.MountLabel,
		Owner:      has.Linux.Owner(has.Process.User),
		LogPath:    s.LogPath,
		LogDir:     s.LogDir,
		LogMaxLine: h.cfg.LogMaxLine,
		Stdin:      s.Stdin,
		StdinOnce:  s.StdinOnce,
		TTY:        s.TTY,
	}
	if h.sandboxed() {
		req = h.inSandbox(req, &has)
	}
	return req, log, nil
}

// onHost is what a bundle says about the host, and its cgroup there.
func (h *Handler) onHost(bundle string) (t traces, cgroup string, err error) {
	read, err := readAs[traces](bundle)
	if err != nil {
		return traces{}, "", err
	}
	cgroup, err = h.cgroupOf(read)
	return *read, cgroup, err
}

// startedBefore finds the process that the monitor has under this id. It ended
// before the start was recorded; its exit will be told.
func (h *Handler) startedBefore(ctx context.Context, id string, taken error) (monitorv1.Started, error) {
	ctx, cancel := unhurried(ctx, 0)
	defer cancel()
	p, err := h.cfg.Monitor.Find(ctx, id)
	if err != nil || p.Kind != monitorv1.KindContainer || p.PID == 0 {
		return monitorv1.Started{}, errors.Join(taken, err)
	}
	return p.Started, nil
}

func (h *Handler) startAfresh(ctx context.Context, id string, req monitorv1.StartRequest) (monitorv1.Started, error) {
	if err := h.Delete(ctx, id); err != nil {
		return monitorv1.Started{}, err
	}
	if err := os.Remove(filepath.Join(filepath.Dir(req.PIDFile), "runtime.log")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return monitorv1.Started{}, err
	}
	return h.askStart(ctx, req)
}

// failed removes what a failed start has left and returns why it failed, in the
// runtime's words where it had any.
func (h *Handler) failed(ctx context.Context, s pod.StartRequest, log string, err error) error {
	said, trouble := readLog(log), disk.Trouble(s.Bundle.Path)
	if why := criu.RestoreFailure(s.Bundle.Path); s.Restore != "" && why != "" {
		said = "criu says: " + why
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
	defer cancel()
	left := h.forget(undo, s.ID)
	if left == nil {
		left = h.Delete(undo, s.ID)
	}
	if left != nil {
		left = fmt.Errorf("and clean up after it: %w", left)
	}
	if said == "" || errors.Is(err, errdefs.ErrExhausted) || errors.Is(err, errdefs.ErrDeadline) || ctx.Err() != nil {
		return errors.Join(because(ctx, err), left)
	}
	if trouble != nil {
		return errors.Join(fmt.Errorf("%w (the runtime says: %s)", trouble, said), left)
	}
	process, _ := readProcess(s.Bundle.Path)
	if process == nil {
		return errors.Join(explain(said, nil, nil), left)
	}
	return errors.Join(explain(said, process.Args, process.Env), left)
}

// forget drops what the monitor knows of a start that failed.
func (h *Handler) forget(ctx context.Context, id string) error {
	p, err := h.cfg.Monitor.Find(ctx, id)
	if errors.Is(err, errdefs.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if p.State != monitorv1.Exited {
		if err := h.cfg.Monitor.Signal(ctx, id, sigKill, true); err != nil && !errors.Is(err, errdefs.ErrNotFound) {
			return err
		}
		if _, err := h.cfg.Monitor.Wait(ctx, id); err != nil && !errors.Is(err, errdefs.ErrNotFound) {
			return err
		}
	}
	return ignoreNotFound(h.cfg.Monitor.Forget(ctx, id))
}

func ignoreNotFound(err error) error {
	if errors.Is(err, errdefs.ErrNotFound) {
		return nil
	}
	return err
}
