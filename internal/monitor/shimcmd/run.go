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
	"fairlead.run/internal/taskapi"
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
}

// begin starts the container or the process. When it fails, nothing is left.
func (t *task) begin(ctx context.Context) error {
	if t.verb == "exec" {
		return t.beginExec(ctx)
	}
	if err := os.Mkdir(t.folder(), 0o700); errors.Is(err, os.ErrExist) {
		return fmt.Errorf("container with given ID already exists: %s", t.folder())
	} else if err != nil {
		return err
	}
	err := t.beginContainer(ctx)
	if err != nil {
		t.undo()
	}
	return err
}

func (t *task) beginContainer(ctx context.Context) (err error) {
	t.who = taskapi.Process{ID: t.id}
	sandbox, err := t.sandbox()
	if err != nil {
		return err
	}
	t.record = taskapi.Record{Shim: t.shim, Sandbox: sandbox, Bundle: t.bundle}
	if err := t.record.Write(t.root, t.id); err != nil {
		return err
	}
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
	if err := t.create(ctx); err != nil {
		return err
	}
	if t.record.PID, err = t.start(ctx); err != nil {
		return err
	}
	return t.record.Write(t.root, t.id)
}

func (t *task) create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, createLimit)
	defer cancel()
	return t.record.Create(ctx, t.id, t.bundle, t.io.paths, t.settings)
}

func (t *task) start(ctx context.Context) (pid int, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
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
	return t.record.Write(t.root, t.id)
}

// bootShim starts a shim.
func (t *task) bootShim(ctx context.Context) (err error) {
	if err := t.openLog(); err != nil {
		return err
	}
	if err := t.openEvents(); err != nil {
		return err
	}
	if t.record.Endpoint, err = t.boot(ctx); err != nil {
		return err
	}
	return t.record.Write(t.root, t.id)
}

// undo removes what there is of a container that did not start.
func (t *task) undo() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if t.verb == "exec" {
		_ = t.record.Kill(ctx, t.who, sigKill, false)
		_ = t.record.Delete(ctx, t.who)
		return
	}
	// Its caller deletes the container again, and hears of it then.
	_ = t.remove(ctx)
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
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	err = t.record.Exec(limited, t.who, t.io.paths, taskapi.Any{Type: taskapi.TypeProcess, Value: spec})
	if errors.Is(err, errdefs.ErrNotFound) {
		return fmt.Errorf("container %s is not running", t.id) // its stand-in has deleted it
	} else if err != nil {
		return err
	}
	if _, err := t.start(ctx); err != nil {
		t.undo()
		return err
	}
	return nil
}
