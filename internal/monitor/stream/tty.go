package stream

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/monitor/crilog"
	"fairlead.run/internal/monitor/journal"
	"fairlead.run/internal/monitor/linux"
)

// The places within a step at which a test kills the monitor.
var (
	ttyExpected = failpoint.Register("monitor.terminal.expected")
	ttyRead     = failpoint.Register("monitor.terminal.read")
	ttyNoted    = failpoint.Register("monitor.terminal.noted")
	ttyArmed    = failpoint.Register("monitor.terminal.armed")
	ttyWritten  = failpoint.Register("monitor.terminal.written")
)

// ttySize is how much is read from a terminal at once: no more than the kernel
// gives, because that much is zeroed before each read.
const ttySize = 4096

// stepTTY copies one read of the terminal. What does not end in a newline is a
// prompt more often than not, so it is written as a part at once.
func (c *Copier) stepTTY(ctx context.Context) (int, error) {
	if linux.Buffered(c.fd) == 0 && (c.hungUp || !linux.HungUp(c.fd)) && !c.ended.Load() {
		return 0, nil
	}
	slot, err := c.Pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	n, err := c.readTTY(slot)
	if n == 0 {
		slot.Clear()
		c.Pool.Release(slot)
		return 0, err
	}
	c.Fan.Write(c.Stream, slot.Raw()[:n])
	if c.Log != nil && !c.writeTTY(ctx, slot, n) {
		return 0, c.giveUp(ctx, slot)
	}
	slot.Clear()
	c.Pool.Release(slot)
	return n, nil
}

// readTTY reads from the terminal into the slot, and notes there how much it
// was.
func (c *Copier) readTTY(slot *journal.Slot) (int, error) {
	slot.Expect(c.ttyStep(0), ttySize)
	if err := failpoint.Hit(ttyExpected); err != nil {
		return 0, err
	}
	n, err := linux.Read(c.fd, slot.Raw()[:ttySize])
	switch {
	case errors.Is(err, unix.EAGAIN):
		return 0, nil
	case err != nil, n == 0:
		// EIO: nobody has the terminal open. While the container lives, somebody
		// may open it again, and is noticed when he writes.
		c.hungUp = true
		if c.ended.Load() {
			return 0, errEnd
		}
		return 0, nil
	}
	c.hungUp = false
	_ = failpoint.Hit(ttyRead)
	slot.Arm(c.ttyStep(n))
	_ = failpoint.Hit(ttyNoted)
	return n, nil
}

// ttyStep is a step whose n bytes are in the slot, and none of them in the log.
func (c *Copier) ttyStep(n int) journal.Step {
	return journal.Step{ID: c.ID, Stream: byte(c.Stream), Raw: n, Consumed: true}
}

// writeTTY writes the n bytes in the slot to the log, however long it takes: a
// terminal's output cannot wait anywhere else. It returns false with ctx.
func (c *Copier) writeTTY(ctx context.Context, slot *journal.Slot, n int) bool {
	return c.insist(ctx, slot, func() error {
		return appendTTY(c.Log, slot, c.ttyStep(n), c.MaxLine)
	})
}

// insist repeats work that writes what is in the slot until it succeeds.
func (c *Copier) insist(ctx context.Context, slot *journal.Slot, work func() error) bool {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := work()
		if err == nil {
			c.problem.Store(nil)
			return true
		}
		c.Pool.Lend(slot)
		text := err.Error()
		c.problem.Store(&text)
		c.sleep(ctx, pause)
		if ctx.Err() != nil {
			return false
		}
	}
}

// giveUp leaves a slot that could not be written: to the successor, if there
// will be one.
func (c *Copier) giveUp(ctx context.Context, slot *journal.Slot) error {
	if !c.Resting() {
		slot.Clear()
		c.Pool.Release(slot)
	}
	return context.Cause(ctx)
}

// appendTTY writes the bytes of a step that are not in the log yet. It may be
// repeated after an error, and by a successor after a crash.
func appendTTY(log *crilog.File, slot *journal.Slot, step journal.Step, maxLine int) error {
	if now, ok := slot.Pending(); ok {
		step = now // some may be done
	}
	rules := crilog.Rules{Stream: crilog.Stream(step.Stream), At: time.Now(), Max: maxLine, Flush: true}
	for step.Done < step.Raw {
		entries, used := crilog.Format(slot.Out(), slot.Raw()[step.Done:step.Raw], rules)
		next := step
		next.Done += used
		arm := func(at crilog.Place) {
			armed := next
			armed.Dev, armed.Ino, armed.Offset, armed.Out = at.Dev, at.Ino, at.Offset, len(entries)
			slot.Arm(armed)
			_ = failpoint.Hit(ttyArmed)
		}
		if err := log.Append(entries, arm, func() { slot.Arm(step) }); err != nil {
			return err
		}
		_ = failpoint.Hit(ttyWritten)
		slot.Arm(next)
		step = next
	}
	return nil
}
