package shimcmd

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/taskapi"
)

// killWait is how long a container may take to end after SIGKILL.
const killWait = 10 * time.Second

// remove ends a container, makes its shim forget it, and ends the shim with the
// container that it was started for. A shim that is dead or gives no answer is
// killed, and its program asked to tidy up; that costs its own pod alone.
func (o *options) remove(ctx context.Context) error {
	r, err := o.record(o.id)
	if err != nil {
		if _, there := os.Lstat(o.folder()); there == nil {
			return os.RemoveAll(o.folder()) // cut off before there was anything
		}
		return err
	}
	if err := o.removeTask(ctx, r); err != nil {
		return err
	}
	if r.Sandbox == o.id {
		o.shutdown(ctx, r)
	}
	return os.RemoveAll(o.folder())
}

func (o *options) removeTask(ctx context.Context, r taskapi.Record) error {
	if r.Address == "" {
		return nil // its shim had not been started; or nobody knows where it is
	}
	err := deleteTask(ctx, r, taskapi.Process{ID: o.id})
	if err == nil || errors.Is(err, errdefs.ErrNotFound) {
		return nil
	}
	if !taskapi.Gone(err) && !errors.Is(err, errdefs.ErrDeadline) && !errors.Is(err, errdefs.ErrInternal) {
		return err
	}
	endShim(r.Sandbox)
	called := *o
	called.shim, called.bundle = r.Shim, r.Bundle
	if _, lost := os.Stat(r.Bundle); lost != nil {
		return nil // nothing to tell the program what to tidy up
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bootLimit)
	defer cancel()
	// What is left where it fails is the container's cgroup, which the caller empties.
	_, _ = called.runShim(ctx, r.Sandbox, nil, "delete")
	return nil
}

// deleteTask kills a process and deletes it.
func deleteTask(ctx context.Context, r taskapi.Record, who taskapi.Process) error {
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	err := r.Kill(limited, who, unix.SIGKILL, true)
	if err != nil && (taskapi.Gone(err) || limited.Err() != nil) {
		return err
	}
	// Else it has ended already, which each runtime says in its own words.
	waited, cancelWait := context.WithTimeout(ctx, killWait)
	defer cancelWait()
	if _, err := r.Wait(waited, who); err != nil && (taskapi.Gone(err) || waited.Err() != nil) {
		return err
	}
	deleted, cancelDelete := context.WithTimeout(ctx, callLimit)
	defer cancelDelete()
	return r.Delete(deleted, who)
}

// shutdown ends a shim, and removes its sockets.
func (o *options) shutdown(ctx context.Context, r taskapi.Record) {
	if r.Address != "" {
		limited, cancel := context.WithTimeout(ctx, callLimit)
		defer cancel()
		if r.Shutdown(limited, o.id) == nil {
			awaitEnd(r.Sandbox)
		}
	}
	endShim(r.Sandbox)
	if path := r.SocketPath(); path != "" {
		_ = os.Remove(path)
	}
	_ = os.Remove(o.eventsSocket())
}

// shutdownWait is how long a shim may take to end by itself, and after SIGKILL.
const shutdownWait = 3 * time.Second

// awaitEnd waits for the end of a shim that was told to.
func awaitEnd(sandbox string) {
	for end := time.Now().Add(shutdownWait); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, lives := linux.OldestWith(shimMark(sandbox)); !lives {
			return
		}
	}
}

// shimMark is the entry in the environment of a shim by which its processes are
// known: not each tells its pid, and one that hangs tells nothing.
func shimMark(sandbox string) string { return "FAIRLEAD_SHIM=" + sandbox }

// endShim kills the shim of a sandbox, if it lives.
func endShim(sandbox string) {
	for end := time.Now().Add(shutdownWait); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		s, lives := linux.OldestWith(shimMark(sandbox))
		if !lives {
			return
		}
		f, err := linux.OpenProcess(s.PID, s.Start)
		if err != nil {
			continue // it has ended
		}
		_ = linux.SignalProcess(f, unix.SIGKILL)
		_ = f.Close()
	}
}
