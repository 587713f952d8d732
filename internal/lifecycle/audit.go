package lifecycle

import (
	"context"
	"fmt"
	"log/slog"

	"fairlead.run/internal/pod"
)

// Records lists every record as it is now, for whoever compares them with the
// host. They are shared and must not be modified.
func (c *Core) Records(context.Context) ([]*pod.Record, error) { return c.book.list(), nil }

// Hold runs do with the record of a pod while no operation on the pod is under
// way, nor one on the container if that is given.
func (c *Core) Hold(ctx context.Context, id pod.ID, container pod.ContainerID, do func(*pod.Record) error) error {
	unlock, err := c.begin(ctx, id, string(id))
	if err != nil {
		return err
	}
	defer unlock()
	if container != "" {
		// In this order RemovePod takes them too.
		unlock, err := c.locks.Lock(ctx, string(container))
		if err != nil {
			return err
		}
		defer unlock()
	}
	r, err := c.book.pod(id)
	if err != nil {
		return err
	}
	if container != "" && r.Container(container) == nil {
		return unknownContainer(string(container))
	}
	return do(r)
}

// Known lists the records of a node on which no core runs, as a new one would
// take them in, and changes nothing.
func Known(ctx context.Context, d Drivers, log *slog.Logger) ([]*pod.Record, error) {
	records, broken, err := d.Store.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("load pod records: %w", err)
	}
	c := &Core{Drivers: d, log: log, book: newBook(d.Store)}
	for _, r := range records {
		c.book.adopt(r)
	}
	c.salvage(ctx, broken)
	return c.book.list(), nil
}
