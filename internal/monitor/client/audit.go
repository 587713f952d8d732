package client

import (
	"context"
	"errors"
	"time"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/wire"
)

// Find returns a client of a monitor that may not run, and starts none. Its
// calls do, but for Peek.
func Find(o Options) *Client { return &Client{options: o} }

// Peek is List for whoever must not start a monitor: where none runs, it
// follows no process. As elsewhere, one that is just being restarted is waited
// for.
func (c *Client) Peek(ctx context.Context) ([]monitorv1.Process, error) {
	for deadline := time.Now().Add(gap); ; {
		var list monitorv1.ProcessList
		conn, fds, _, err := c.try(ctx, request{op: monitorv1.OpList}, &list)
		switch {
		case err == nil:
			wire.CloseAll(fds)
			return list.Processes, conn.Close()
		case errors.Is(err, errNobody):
			return nil, nil
		case !errors.Is(err, errdefs.ErrUnavailable) || time.Now().After(deadline):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
