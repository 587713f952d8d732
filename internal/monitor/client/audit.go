package client

import (
	"context"
	"errors"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/monitor/wire"
)

// Find returns a client of a monitor that may not run, and starts none. Its
// calls do, but for Peek.
func Find(o Options) *Client { return &Client{options: o} }

// Peek is List for whoever must not start a monitor: where none runs, it
// follows no process.
func (c *Client) Peek(ctx context.Context) ([]monitorv1.Process, error) {
	conn, err := c.options.dial(ctx)
	if errors.Is(err, errNobody) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := conn.Close(); err != nil {
		return nil, err
	}
	var list monitorv1.ProcessList
	conn, fds, _, err := c.try(ctx, request{op: monitorv1.OpList}, &list)
	if err != nil {
		return nil, err
	}
	wire.CloseAll(fds)
	return list.Processes, conn.Close()
}
