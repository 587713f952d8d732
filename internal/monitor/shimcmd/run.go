package shimcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/taskapi"
)

// The places of a start at which a test kills whoever is at it.
var (
	reserved = failpoint.Register("shim.reserved")
	booted   = failpoint.Register("shim.booted")
	joined   = failpoint.Register("shim.joined")
	piped    = failpoint.Register("shim.piped")
	noted    = failpoint.Register("shim.noted")
	created  = failpoint.Register("shim.created")
	started  = failpoint.Register("shim.started")
	recorded = failpoint.Register("shim.recorded")
	execMade = failpoint.Register("shim.exec-made")
	execRuns = failpoint.Register("shim.exec-started")
)

// sandboxAnnotation is how shims know which containers belong together.
const sandboxAnnotation = "io.kubernetes.cri.sandbox-id"

// task is a container, or a process that is executed in one, that this process
// stands in for.
type task struct {
	*options
	who    taskapi.Process
	record taskapi.Record
	io     *streams
	lock   *os.File // of a container's folder, until it runs
}

// begin starts the container, whose folder is there and locked, or the process.
// When it fails, or ctx ends meanwhile, nothing is left.
func (t *task) begin(ctx context.Context) (err error) {
	if t.verb == "exec" {
		err = t.beginExec(ctx)
	} else {
		err = t.beginContainer(ctx)
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		t.undo()
	}
	return err
}

func (t *task) beginContainer(ctx context.Context) (err error) {
	t.who = taskapi.Process{ID: t.id}
	if err := failpoint.Hit(reserved); err != nil {
		return err
	}
	sandbox, err := t.sandbox()
	if err != nil {
		return err
	}
	t.record = taskapi.Record{Shim: t.shim, Sandbox: sandbox, Bundle: t.bundle}
	if sandbox == t.id {
		err = t.bootShim(ctx)
	} else {
		err = t.joinShim(sandbox)
	}
	if err != nil {
		return err
	}
	if t.io, err = t.openStreams(); err != nil {
		return err
	}
	if err := failpoint.Hit(piped); err != nil {
		return err
	}
	if err := t.note(taskapi.Creating); err != nil {
		return err
	}
	if err := failpoint.Hit(noted); err != nil {
		return err
	}
	if err := t.create(ctx); err != nil {
		return err
	}
	if t.record.PID, err = t.start(ctx); err != nil {
		return err
	}
	if err := failpoint.Hit(started); err != nil {
		return err
	}
	if err := t.note(taskapi.Running); err != nil {
		return err
	}
	return failpoint.Hit(recorded)
}

// note writes down how far the container has come.
func (t *task) note(stage taskapi.Stage) error {
	t.record.Stage = stage
	return t.record.Write(t.root, t.id)
}

// outlast is a context for a call to the shim, with a limit. It does not end at once
// when ctx does: a shim that is left alone with a call may still carry it out, and
// nobody would know of it.
func outlast(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(callLimit, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

func (t *task) create(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ctx, cancel := outlast(ctx, createLimit)
	defer cancel()
	if err := t.record.Create(ctx, t.id, t.bundle, t.io.paths, t.settings); err != nil {
		return err
	}
	return failpoint.Hit(created)
}

func (t *task) start(ctx context.Context) (pid int, err error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	ctx, cancel := outlast(ctx, startLimit)
	defer cancel()
	if pid, err = t.record.Start(ctx, t.who); err != nil {
		return 0, err
	}
	t.resize(ctx)
	return pid, nil
}

// sandbox is the container of the bundle's pod for which its shim was started.
func (t *task) sandbox() (string, error) {
	data, err := os.ReadFile(filepath.Join(t.bundle, "config.json"))
	if err != nil {
		return "", err
	}
	var spec struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := json.Unmarshal(data, &spec); err != nil {
		return "", fmt.Errorf("read config.json: %w", err)
	}
	if s := spec.Annotations[sandboxAnnotation]; s != "" && filepath.Base(s) == s {
		return s, nil
	}
	return t.id, nil
}

// joinShim finds the shim of the pod.
func (t *task) joinShim(sandbox string) error {
	of, err := taskapi.ReadRecord(t.root, sandbox)
	if err != nil {
		return fmt.Errorf("find the shim of pod %s: %w", sandbox, err)
	}
	t.record.Shim, t.record.Endpoint = of.Shim, of.Endpoint
	return failpoint.Hit(joined)
}

// bootShim starts a shim.
func (t *task) bootShim(ctx context.Context) (err error) {
	if err := t.note(taskapi.Booting); err != nil {
		return err
	}
	if err := t.openLog(); err != nil {
		return err
	}
	if err := t.openEvents(); err != nil {
		return err
	}
	if t.record.Endpoint, err = t.boot(ctx); err != nil {
		return err
	}
	return failpoint.Hit(booted)
}

// undo removes what there is of a start that failed.
func (t *task) undo() {
	ctx, cancel := context.WithTimeout(context.Background(), startWait)
	defer cancel()
	// Its caller deletes the container again, and hears of errors then. What else a
	// container executes ends with it.
	if t.verb == "exec" {
		_ = t.record.Kill(ctx, t.who, sigKill, false)
		_ = t.record.Delete(ctx, t.who)
		return
	}
	_ = t.removeLocked(ctx)
}

// beginExec starts one more process in a container.
func (t *task) beginExec(ctx context.Context) (err error) {
	if t.record, err = t.options.record(t.id); err != nil {
		return err
	}
	spec, err := os.ReadFile(t.process)
	if err != nil {
		return err
	}
	t.who = taskapi.Process{ID: t.id, Exec: filepath.Base(filepath.Dir(t.process))}
	if t.io, err = t.openStreams(); err != nil {
		return err
	}
	limited, cancel := outlast(ctx, callLimit)
	defer cancel()
	err = t.record.Exec(limited, t.who, t.io.paths, taskapi.Any{Type: taskapi.TypeProcess, Value: spec})
	if errors.Is(err, errdefs.ErrNotFound) {
		return fmt.Errorf("container %s is not running", t.id) // its stand-in has deleted it
	} else if err != nil {
		return err
	}
	if err := failpoint.Hit(execMade); err != nil {
		return err
	}
	if _, err := t.start(ctx); err != nil {
		return err
	}
	return failpoint.Hit(execRuns)
}
