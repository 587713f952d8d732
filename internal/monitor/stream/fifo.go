package stream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/monitor/crilog"
	"fairlead.run/internal/monitor/journal"
	"fairlead.run/internal/monitor/linux"
)

// The places within a step at which a test kills the monitor.
var (
	afterPeek    = failpoint.Register("monitor.copy.after-peek")
	afterArm     = failpoint.Register("monitor.copy.after-arm")
	afterWrite   = failpoint.Register("monitor.copy.after-write")
	afterConsume = failpoint.Register("monitor.copy.after-consume")
)

// stepFIFO copies what the FIFO holds, as far as it fits a slot, and returns
// how many bytes it consumed.
func (c *Copier) stepFIFO(ctx context.Context, ended bool) (int, error) {
	slot, err := c.Pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer c.Pool.Release(slot)
	n, err := peek(c.fd, slot)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		c.held, c.sent = 0, 0
		return 0, nil
	}
	if err := failpoint.Hit(afterPeek); err != nil {
		return 0, err
	}
	raw := slot.Raw()[:n]
	c.sent = min(c.sent, n)
	c.Fan.Write(c.Stream, raw[c.sent:])
	c.sent = n

	used, err := c.move(slot, raw, ended)
	c.keepTail(raw[:used])
	c.sent -= used
	c.held = n - used
	return used, err
}

// peek copies the head of the FIFO into the slot without consuming it. It
// returns zero when there is nothing yet, and errEnd when there never will be.
func peek(fd int, slot *journal.Slot) (int, error) {
	pipe := slot.Pipe()
	n, err := linux.Tee(fd, pipe[1], journal.RawSize)
	if errors.Is(err, unix.EAGAIN) {
		return 0, nil
	}
	if err != nil {
		return 0, os.NewSyscallError("tee", err)
	}
	if n == 0 {
		return 0, errEnd
	}
	for got := 0; got < n; {
		more, err := linux.Read(pipe[0], slot.Raw()[got:n])
		if err != nil {
			return 0, fmt.Errorf("read what was peeked: %w", err)
		}
		got += more
	}
	return n, nil
}

// move writes the lines in raw to the log and consumes them.
func (c *Copier) move(slot *journal.Slot, raw []byte, ended bool) (int, error) {
	if c.Log == nil {
		return consume(c.fd, slot.Scratch()[:len(raw)]), nil
	}
	rules := crilog.Rules{Stream: c.Stream, At: time.Now(), Max: c.MaxLine}
	entries, used := crilog.Format(slot.Out(), raw, rules)
	if used == 0 && c.mustFlush(len(raw), ended) {
		rules.Flush = true
		entries, used = crilog.Format(slot.Out(), raw, rules)
	}
	if used == 0 {
		return 0, nil
	}
	if err := c.write(slot, entries, used); err != nil {
		return 0, err
	}
	consume(c.fd, slot.Scratch()[:used])
	if err := failpoint.Hit(afterConsume); err != nil {
		return used, err
	}
	slot.Clear()
	return used, nil
}

func (c *Copier) write(slot *journal.Slot, entries []byte, used int) error {
	arm := func(at crilog.Place) {
		slot.Arm(journal.Step{
			ID: c.ID, Stream: byte(c.Stream), Dev: at.Dev, Ino: at.Ino, Offset: at.Offset,
			Raw: used, Out: len(entries),
		})
		_ = failpoint.Hit(afterArm)
	}
	if err := c.Log.Append(entries, arm, slot.Clear); err != nil {
		return err
	}
	return failpoint.Hit(afterWrite)
}

// mustFlush says whether an unterminated line of n bytes at the head of the
// FIFO has to be written as it is: nothing will follow it, or nothing can.
func (c *Copier) mustFlush(n int, ended bool) bool {
	if ended || linux.HungUp(c.fd) {
		return linux.Buffered(c.fd) <= n
	}
	return linux.PipeFull(c.fd)
}

// consume takes as many bytes off the FIFO as fit the scratch area. Fewer may be
// left only if the container reads its own output.
func consume(fd int, scratch []byte) int {
	done := 0
	for done < len(scratch) {
		got, err := linux.Read(fd, scratch[done:])
		if err != nil || got == 0 {
			break
		}
		done += got
	}
	return len(scratch)
}
