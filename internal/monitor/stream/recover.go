package stream

import (
	"fmt"
	"time"

	"fairlead.run/internal/monitor/crilog"
	"fairlead.run/internal/monitor/journal"
)

// Left is what Finish needs to know about the container whose output a dead
// monitor was copying.
type Left struct {
	LogPath string
	MaxLine int
	// FIFO is the read end of the stream, -1 for a terminal.
	FIFO int
}

// Finish completes a step that a dead monitor began: it writes what is missing
// in the log and consumes what was not consumed. It runs before any copier of
// the container does.
func Finish(slot *journal.Slot, step journal.Step, left Left) error {
	if step.Out == 0 {
		return finishTTY(slot, step, left)
	}
	place := crilog.Place{Dev: step.Dev, Ino: step.Ino, Offset: step.Offset}
	unconsumed := slot.Unconsumed(step)
	again := unconsumed == step.Raw
	if err := crilog.Complete(left.LogPath, place, slot.Entries(step.Out), again); err != nil {
		return fmt.Errorf("finish %s of container %s: %w", crilog.Stream(step.Stream), step.ID, err)
	}
	if unconsumed > 0 && left.FIFO >= 0 {
		consume(left.FIFO, slot, unconsumed)
	}
	return nil
}

// finishTTY writes what was read from a terminal but not even formatted.
func finishTTY(slot *journal.Slot, step journal.Step, left Left) error {
	if left.LogPath == "" {
		return nil
	}
	log, err := crilog.Open(left.LogPath)
	if err != nil {
		return err
	}
	rules := crilog.Rules{Stream: crilog.Stream(step.Stream), At: time.Now(), Max: left.MaxLine, Flush: true}
	raw := slot.Raw()[:step.Raw]
	for err == nil && len(raw) > 0 {
		entries, used := crilog.Format(slot.Out(), raw, rules)
		err = log.Append(entries, func(crilog.Place) {}, func() {})
		raw = raw[used:]
	}
	if closed := log.Close(); err == nil {
		err = closed
	}
	return err
}
