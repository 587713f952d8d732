package daemon

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/runtime/oci"
)

// tidyInherited ends what an earlier daemon was at when it died, and that belongs to
// no pod's record: trials of handlers, and commands in containers. Who had such
// a command executed has lost its output and its end with that daemon. What
// fails does no harm to others: an audit finds the trial, and the command ends
// with its container.
func (d *Daemon) tidyInherited(ctx context.Context) error {
	if err := d.parts.keepers.handlers.SweepTrials(ctx); err != nil && ctx.Err() == nil {
		d.log.Warn("what a trial of an earlier daemon has left cannot be removed", "error", err)
	}
	if err := endExecs(ctx, d.parts.monitor); err != nil && ctx.Err() == nil {
		d.log.Warn("a command that an earlier daemon was executing cannot be ended", "error", err)
	}
	return nil
}

// execs is what endExecs needs of the monitor.
type execs interface {
	List(ctx context.Context) ([]monitorv1.Process, error)
	Signal(ctx context.Context, id string, sig syscall.Signal, all bool) error
}

// endExecs kills commands that no run of this process has asked for, with what
// they have started. The monitor then tells how they ended, and is told to
// forget them.
func endExecs(ctx context.Context, m execs) error {
	list, err := m.List(ctx)
	if err != nil {
		return err
	}
	var all errgroup.Group // one that is just being started holds no other up
	for _, p := range list {
		if p.Kind == monitorv1.KindExec && p.State != monitorv1.Exited && !oci.IsOwnExec(p.ID) {
			all.Go(func() error { return endExec(ctx, m, p.ID) })
		}
	}
	return all.Wait()
}

const (
	// startLimit is what the start of a command may still take that was asked
	// for by a daemon just before its death.
	startLimit = 2 * time.Minute
	startPause = 50 * time.Millisecond
)

func endExec(ctx context.Context, m execs, id string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		err := m.Signal(ctx, id, syscall.SIGKILL, true)
		if err == nil || errors.Is(err, errdefs.ErrNotFound) {
			return nil
		}
		if !errors.Is(err, errdefs.ErrPrecondition) {
			return fmt.Errorf("kill exec %s: %w", id, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kill exec %s: %w: %w", id, err, context.Cause(ctx))
		case <-time.After(startPause):
		}
	}
}
