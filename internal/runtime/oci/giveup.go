package oci

import (
	"context"
	"errors"
	"time"

	"fairlead.run/internal/errdefs"
)

// giveUpPause is how long to wait before a start is given up once more: the
// monitor may not have heard of it before, or has died since.
const giveUpPause = 50 * time.Millisecond

// giveUpWith gives up what the monitor is starting under an id when ctx is
// cancelled, until the caller, who waits for the answer to its request, calls stop.
// A deadline the monitor keeps by itself.
func (h *Handler) giveUpWith(ctx context.Context, id string) (stop func()) {
	asking, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	waiting := context.AfterFunc(ctx, func() {
		defer close(ended)
		if errors.Is(ctx.Err(), context.Canceled) {
			h.keepGivingUp(asking, id)
		}
	})
	return func() {
		end()
		if !waiting() {
			<-ended
		}
	}
}

func (h *Handler) keepGivingUp(ctx context.Context, id string) {
	for {
		err := h.cfg.Monitor.GiveUp(ctx, id)
		if errors.Is(err, errdefs.ErrUnimplemented) {
			h.cfg.Log.Warn("the monitor is of an earlier version and cannot give up a start; it is waited for", "id", id, "error", err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(giveUpPause):
		}
	}
}

// GiveUp ends a start that an earlier daemon has asked for and that is still under
// way, and waits for its end. There need not be one.
func (h *Handler) GiveUp(ctx context.Context, id string) error {
	err := h.cfg.Monitor.GiveUp(ctx, id)
	if err == nil {
		_, err = h.cfg.Monitor.Wait(ctx, id)
	}
	switch {
	case errors.Is(err, errdefs.ErrNotFound), errors.Is(err, errdefs.ErrPrecondition), errors.Is(err, errdefs.ErrUnimplemented):
		return nil
	}
	return err
}

// because adds why its caller has left to the error of a start that was given up.
func because(ctx context.Context, err error) error {
	if err == nil || !errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	return errors.Join(context.Cause(ctx), err)
}
