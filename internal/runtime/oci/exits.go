package oci

import (
	"context"
	"errors"
	"log/slog"
	"time"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// ExitSource is what Exits needs of fairlead-monitor.
type ExitSource interface {
	Events(ctx context.Context, see func(monitorv1.Exit)) error
	waiter
	Forget(ctx context.Context, id string) error
}

// Exits tells the core how containers and pods' own processes ended.
type Exits struct {
	monitor ExitSource
	log     *slog.Logger
}

// NewExits makes it; a nil log means slog.Default().
func NewExits(m ExitSource, log *slog.Logger) *Exits {
	if log == nil {
		log = slog.Default()
	}
	return &Exits{monitor: m, log: log}
}

// How long Run waits before it asks a monitor again that is away.
const (
	reconnectFirst = 50 * time.Millisecond
	reconnectLast  = 5 * time.Second
)

// Run calls seen for every exit that is recorded and then for every new one, at
// least once each, until ctx ends. It comes back by itself when the monitor
// was away. Of exec processes it says nothing; those that an earlier run of the
// daemon has left are forgotten.
func (e *Exits) Run(ctx context.Context, seen func(id string, e pod.Exit)) error {
	for pause := reconnectFirst; ; pause = min(2*pause, reconnectLast) {
		begin := time.Now()
		err := e.monitor.Events(ctx, func(x monitorv1.Exit) { e.one(ctx, x, seen) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Since(begin) > reconnectLast {
			pause = reconnectFirst
		}
		e.log.Warn("the monitor's exits ended; asking again", "error", err, "in", pause)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

func (e *Exits) one(ctx context.Context, x monitorv1.Exit, seen func(string, pod.Exit)) {
	if x.Kind != monitorv1.KindExec {
		seen(x.ID, exitOf(x))
		return
	}
	if IsOwnExec(x.ID) {
		return // whoever started it waits for it and forgets it
	}
	if err := e.Forget(ctx, x.ID); err != nil && ctx.Err() == nil {
		e.log.Warn("cannot forget an exec of an earlier run", "exec", x.ID, "error", err)
	}
}

// reapLimit bounds the wait for a dead process to be reaped.
const reapLimit = 5 * time.Second

// Forget drops what is known of a process that ended. It is idempotent. A
// process that has just been killed is out of its cgroup before its parent, the
// monitor, has reaped it; until then the monitor holds it for running.
func (e *Exits) Forget(ctx context.Context, id string) error {
	err := e.monitor.Forget(ctx, id)
	if errors.Is(err, errdefs.ErrPrecondition) {
		reaped, cancel := context.WithTimeout(ctx, reapLimit)
		defer cancel()
		if _, late := wait(reaped, e.monitor, id); late != nil && !errors.Is(late, errdefs.ErrNotFound) {
			return errors.Join(err, late)
		}
		err = e.monitor.Forget(ctx, id)
	}
	return ignoreNotFound(err)
}
