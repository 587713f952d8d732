package shimcmd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/taskapi"
)

// The places of a removal at which a test kills it.
var (
	killed  = failpoint.Register("shim.killed")
	deleted = failpoint.Register("shim.deleted")
	shut    = failpoint.Register("shim.shut-down")
)

// How long a container may take to end after SIGKILL, and a shim's program to take
// away what is left of one.
const (
	killWait  = 10 * time.Second
	tidyLimit = 15 * time.Second
)

// remove ends a container, makes its shim forget it, and ends the shim with the
// container that it was started for. A shim that is dead or gives no answer is
// killed, and its program asked to tidy up; that costs its own pod alone.
func (o *options) remove(ctx context.Context) error {
	lock, err := o.lock(startWait)
	if errors.Is(err, fs.ErrNotExist) {
		return errNoContainer(o.id)
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	return o.removeLocked(ctx)
}

func (o *options) removeLocked(ctx context.Context) error {
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
	if err := failpoint.Hit(deleted); err != nil {
		return err
	}
	if r.Sandbox == o.id {
		o.shutdown(ctx, r)
	}
	if err := failpoint.Hit(shut); err != nil {
		return err
	}
	return os.RemoveAll(o.folder())
}

func (o *options) removeTask(ctx context.Context, r taskapi.Record) error {
	if r.Stage == taskapi.Booting {
		return nil // whatever there is of a shim has been told nothing
	}
	err := deleteTask(ctx, r, taskapi.Process{ID: o.id})
	if errors.Is(err, errdefs.ErrNotFound) && r.Stage == taskapi.Creating {
		// Cut off while it was created: what is left of it the shim does not know, or
		// has come to know meanwhile.
		_ = o.tidy(ctx, r)
		err = deleteTask(ctx, r, taskapi.Process{ID: o.id})
	}
	refused := errors.As(err, new(*taskapi.Refusal))
	switch {
	case err == nil, errors.Is(err, errdefs.ErrNotFound):
		return nil
	case refused && r.Sandbox != o.id:
		// The shim has others. It will never be asked for this one again.
		return o.tidy(ctx, r)
	case !refused && !taskapi.Gone(err) && !errors.Is(err, errdefs.ErrDeadline) && !errors.Is(err, errdefs.ErrInternal):
		return err
	}
	endShim(r.Sandbox)
	// What is left where it fails is the container's cgroup, which the caller empties.
	_ = o.tidy(ctx, r)
	return nil
}

// tidy lets the shim's program take away what is left of a container.
func (o *options) tidy(ctx context.Context, r taskapi.Record) error {
	if _, lost := os.Stat(r.Bundle); lost != nil {
		return nil // nothing to tell the program what to take away
	}
	called := *o
	called.shim, called.bundle = r.Shim, r.Bundle
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyLimit)
	defer cancel()
	_, err := called.runShim(ctx, r.Sandbox, nil, "delete")
	return err
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
	if err := failpoint.Hit(killed); err != nil {
		return err
	}
	last, cancelDelete := context.WithTimeout(ctx, callLimit)
	defer cancelDelete()
	return r.Delete(last, who)
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
	sockets := []string{r.SocketPath(), o.eventsSocket()}
	if r.Address == "" {
		sockets = append(sockets, o.bootstrap().SocketPaths()...)
	}
	for _, path := range sockets {
		_ = os.Remove(path) // one that is there; the shim removes its own
	}
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
