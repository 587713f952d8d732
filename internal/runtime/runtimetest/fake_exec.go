package runtimetest

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Exec implements Handler. It has no terminals.
func (f *Fake) Exec(_ context.Context, e pod.ExecRequest) (pod.Exec, error) {
	x, err := f.world.exec(e)
	if err != nil {
		return nil, fmt.Errorf("exec in container %s with handler fake: %w", e.Container.ID, err)
	}
	return x, nil
}

func (w *world) exec(e pod.ExecRequest) (*fakeExec, error) {
	if e.TTY {
		return nil, fmt.Errorf("a terminal: %w", errdefs.ErrUnimplemented)
	}
	if len(e.Command) == 0 {
		return nil, fmt.Errorf("there is no command: %w", errdefs.ErrInvalidArgument)
	}
	r := w.find(string(e.Container.ID))
	if r == nil {
		return nil, errdefs.ErrNotFound
	}
	select {
	case <-r.ended:
		return nil, fmt.Errorf("it has ended: %w", errdefs.ErrPrecondition)
	default:
	}
	process, err := w.process(string(e.Container.ID))
	if err != nil {
		return nil, err
	}
	process.Args = e.Command
	x := &fakeExec{world: w, id: fmt.Sprintf("%s/%s", e.Container.ID, pod.NewID())}
	x.run, err = w.launch(x.id, process, e.Stdio)
	return x, err
}

type fakeExec struct {
	world *world
	id    string
	run   *running
}

// Wait implements pod.Exec.
func (x *fakeExec) Wait(ctx context.Context) (pod.Exit, error) {
	select {
	case <-x.run.ended:
		return x.run.exit, nil
	case <-ctx.Done():
		return pod.Exit{}, ctx.Err()
	}
}

// Kill implements pod.Exec.
func (x *fakeExec) Kill(context.Context) error { return x.run.signal(unix.SIGKILL, true) }

// TTY implements pod.Exec.
func (x *fakeExec) TTY() *os.File { return nil }

// Close implements pod.Exec.
func (x *fakeExec) Close(ctx context.Context) error {
	if err := x.Kill(ctx); err != nil {
		return err
	}
	_, err := x.Wait(ctx)
	x.world.mu.Lock()
	defer x.world.mu.Unlock()
	delete(x.world.runs, x.id)
	return err
}
