package shimcmd

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/monitor/deputy"
	"fairlead.run/internal/taskapi"
)

const sigKill = unix.SIGKILL

// stand waits for the process and ends as it did. One whose shim dies is killed:
// nobody would read its output or know its end.
func (t *task) stand() int {
	ctx := context.Background()
	t.io.copy(func() { t.closeInput(ctx) })
	go t.pass(ctx)
	code, err := t.await(ctx)
	if err != nil {
		if !errors.As(err, new(*taskapi.Refusal)) {
			t.orphaned(ctx)
		}
		deputy.EndBy(sigKill) // it was deleted, or its shim is dead
	}
	// What it has written is passed on by then.
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_ = t.record.Delete(limited, t.who) // who deletes the container hears of errors
	t.io.drain()
	if code == 128+int(sigKill) {
		deputy.EndBy(sigKill)
	}
	return code
}

// foreground runs a container to its end and removes it.
func (o *options) foreground(ctx context.Context) (err error) {
	t := &task{options: o}
	if t.lock, err = o.reserve(); err != nil {
		return err
	}
	defer t.lock.Close()
	if err := t.begin(ctx); err != nil {
		return err
	}
	t.io.copy(func() { t.closeInput(ctx) })
	code, err := t.await(ctx)
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, callLimit)
		defer cancel()
		err = t.record.Delete(limited, t.who)
		t.io.drain()
	}
	if err == nil && code != 0 {
		err = fmt.Errorf("the container's program ended with code %d", code)
	}
	return errors.Join(err, o.removeLocked(ctx))
}

// tries is how often in a row a shim that is there may fail to say how a process
// ended before it counts as dead.
const tries = 3

// await waits for the end of the process. A connection may break without the shim
// having died.
func (t *task) await(ctx context.Context) (code int, err error) {
	for range tries {
		begin := time.Now()
		code, err = t.record.Wait(ctx, t.who)
		if err == nil || errors.As(err, new(*taskapi.Refusal)) {
			return code, err
		}
		if time.Since(begin) < time.Second {
			time.Sleep(100 * time.Millisecond)
		}
	}
	return 0, err
}

// closeInput lets the process see that its input has ended.
func (t *task) closeInput(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_ = t.record.CloseIO(ctx, t.who) // as with a process that has ended
}

// orphaned ends a container that has no shim any more.
func (t *task) orphaned(ctx context.Context) {
	if t.who.Exec != "" {
		return // its container is ended by its own stand-in
	}
	endShim(t.record.Sandbox)
	_ = t.tidy(ctx, t.record) // Delete comes, and hears of errors
}

// pass passes signals on. Whoever kills a container asks its shim.
func (t *task) pass(ctx context.Context) {
	deputy.Signals(func(number syscall.Signal) {
		limited, cancel := context.WithTimeout(ctx, callLimit)
		defer cancel()
		if number == syscall.SIGWINCH {
			t.resize(limited)
			return
		}
		// One that has ended needs no signal, and nobody hears of other errors.
		_ = t.record.Kill(limited, t.who, number, false)
	})
}
