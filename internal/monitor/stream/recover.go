package stream

import (
	"context"
	"fmt"

	"fairlead.run/internal/monitor/crilog"
	"fairlead.run/internal/monitor/journal"
)

// Left is what Finish needs to know about the container whose output a dead
// monitor was copying.
type Left struct {
	Log     crilog.Target
	MaxLine int
	// FIFO is the read end of the stream, -1 for a terminal.
	FIFO int
}

// Finish completes a step that a dead monitor began: it writes what is missing
// in the log and consumes what was not consumed. It runs before any copier of
// the container does. After an error the bytes of a terminal are still in the
// slot, and Finish may be called again; those of a FIFO still are in the FIFO.
func Finish(slot *journal.Slot, step journal.Step, left Left) error {
	if err := finish(slot, step, left); err != nil {
		return fmt.Errorf("finish %s of container %s: %w", crilog.Stream(step.Stream), step.ID, err)
	}
	return nil
}

func finish(slot *journal.Slot, step journal.Step, left Left) error {
	unconsumed := slot.Unconsumed(step)
	if step.Out > 0 {
		place := crilog.Place{Dev: step.Dev, Ino: step.Ino, Offset: step.Offset}
		again := unconsumed > 0 && unconsumed == step.Raw
		if err := crilog.Complete(left.Log, place, slot.Entries(step.Out), again); err != nil {
			return err
		}
	}
	if !step.Consumed {
		if unconsumed > 0 && left.FIFO >= 0 {
			consume(left.FIFO, slot.Scratch()[step.Raw-unconsumed:step.Raw])
		}
		return nil
	}
	step.Out = 0
	slot.Arm(step)
	if step.Done == step.Raw || left.Log.Path == "" {
		return nil
	}
	log := crilog.Later(left.Log)
	err := appendTTY(log, slot, step, left.MaxLine)
	if closed := log.Close(); err == nil {
		err = closed
	}
	return err
}

// unfinished is a step of a dead monitor that could not be completed yet.
type unfinished struct {
	slot *journal.Slot
	left Left
}

// Continue gives the copier of a terminal a step that Finish has failed at. It
// is called before Run, which goes on with it first.
func (c *Copier) Continue(slot *journal.Slot, left Left) {
	c.first = append(c.first, unfinished{slot, left})
}

// finishFirst completes what Continue was called with. It returns false with
// ctx.
func (c *Copier) finishFirst(ctx context.Context) bool {
	for len(c.first) > 0 {
		slot, left := c.first[0].slot, c.first[0].left
		done := c.insist(ctx, slot, func() error {
			step, ok := slot.Pending()
			if !ok {
				return nil
			}
			return Finish(slot, step, left)
		})
		if !done && c.Resting() {
			return false // all stay for the successor
		}
		slot.Clear()
		c.Pool.Release(slot)
		c.first = c.first[1:]
	}
	return ctx.Err() == nil
}
