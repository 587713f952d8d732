package stream

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/monitor/crilog"
	"fairlead.run/internal/monitor/journal"
	"fairlead.run/internal/monitor/linux"
)

// ttyRead is how much is read from a terminal at once: no more than the kernel
// gives, because that much is zeroed before each read.
const ttyRead = 4096

// reopenPause is how often a terminal that nobody has open is looked at.
const reopenPause = 200 * time.Millisecond

// stepTTY copies one read of the terminal. What does not end in a newline is a
// prompt more often than not, so it is written as a part at once.
func (c *Copier) stepTTY(ctx context.Context) (int, error) {
	if linux.Buffered(c.fd) == 0 && !linux.HungUp(c.fd) {
		return 0, nil
	}
	slot, err := c.Pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer c.Pool.Release(slot)
	defer slot.Clear()
	slot.Expect(journal.Step{ID: c.ID, Stream: byte(c.Stream)}, ttyRead)
	n, err := linux.Read(c.fd, slot.Raw()[:ttyRead])
	switch {
	case errors.Is(err, unix.EAGAIN):
		return 0, nil
	case err != nil, n == 0:
		// EIO: nobody has the terminal open. While the container lives, somebody
		// may open it again.
		if !c.ended.Load() {
			c.sleep(ctx, reopenPause)
			return 0, nil
		}
		return 0, errEnd
	}
	raw := slot.Raw()[:n]
	c.Fan.Write(c.Stream, raw)
	if c.Log == nil {
		return n, nil
	}
	rules := crilog.Rules{Stream: c.Stream, At: time.Now(), Max: c.MaxLine, Flush: true}
	for done := 0; done < n; {
		entries, used := crilog.Format(slot.Out(), raw[done:], rules)
		if !c.insist(ctx, slot, entries, n) {
			return n, context.Cause(ctx)
		}
		done += used
	}
	return n, nil
}

// insist writes entries, however long it takes: a terminal's output cannot
// wait anywhere else than in the slot.
func (c *Copier) insist(ctx context.Context, slot *journal.Slot, entries []byte, raw int) bool {
	arm := func(at crilog.Place) {
		slot.Arm(journal.Step{
			ID: c.ID, Stream: byte(c.Stream), Dev: at.Dev, Ino: at.Ino, Offset: at.Offset,
			Raw: raw, Out: len(entries), Consumed: true,
		})
	}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := c.Log.Append(entries, arm, func() {})
		if err == nil {
			return true
		}
		text := err.Error()
		c.problem.Store(&text)
		c.sleep(ctx, pause)
		if ctx.Err() != nil {
			return false
		}
	}
}
