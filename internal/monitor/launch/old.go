package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/handover"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/record"
)

// Old is a command that a dead monitor process has started, or was about to.
// It is a child of the outer process now, or has ended.
type Old struct {
	Mark     string // see Command
	PIDFile  string
	Deadline time.Time
	Quit     <-chan struct{}                        // see Command
	Exit     func(record.Ident) (linux.Ended, bool) // what the outer process has recorded
}

// lateLimit is how long a command that may or may not have been started is given
// to show that it was.
const lateLimit = time.Second

// Find looks for a command that the dead process did not live to record. It
// returns the zero Ident with true when there was one that has ended by now, and
// false when there was none.
func (o *Old) Find(ctx context.Context) (record.Ident, bool) {
	c := Command{Argv: []string{"(unknown)"}, PIDFile: o.PIDFile}
	for end := time.Now().Add(lateLimit); ; {
		main, written := c.ReadPID()
		if s, ok := linux.OldestWith(o.Mark); ok && (written != nil || s.PID != main) {
			return record.Ident{PID: s.PID, Start: s.Start}, true
		}
		if written == nil {
			return record.Ident{}, true
		}
		// What was forked and has not come to its exec yet is on its way.
		if now := time.Now(); now.After(end) && (now.After(o.Deadline) || !forking()) {
			return record.Ident{}, false
		}
		select {
		case <-ctx.Done():
			return record.Ident{}, false
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// forking says whether a child of the outer process, other than this one, is in
// the image of an inner process: a dead one has forked it for a command.
func forking() bool {
	all, err := linux.Processes()
	if err != nil {
		return false
	}
	role := []byte(handover.Arg(handover.FlagRole, handover.RoleInner))
	for _, s := range all {
		if s.PPID != os.Getppid() || s.PID == os.Getpid() || s.State == 'Z' {
			continue
		}
		if line, err := os.ReadFile("/proc/" + strconv.Itoa(s.PID) + "/cmdline"); err == nil && bytes.Contains(line, role) {
			return true
		}
	}
	return false
}

// Result waits for the command and returns the pid of the process that it has left.
// Without who, it looks for the command first.
func (o *Old) Result(ctx context.Context, c *Command, who record.Ident) (int, error) {
	if who.PID == 0 {
		// The predecessor died around the fork.
		found, began := o.Find(ctx)
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if !began {
			return 0, fmt.Errorf("the monitor was restarted before the runtime command began: %w", errdefs.ErrUnavailable)
		}
		who = found
	}
	if err := o.Await(ctx, who); err != nil {
		if ctx.Err() == nil { // else a successor goes on
			c.KillLeft()
		}
		return 0, err
	}
	pid, err := c.ReadPID()
	if err != nil {
		return 0, fmt.Errorf("the monitor was restarted while the runtime command ran, which left no process: %w: %w", errdefs.ErrUnavailable, err)
	}
	// The start of this process is newer than the command, or the file is old.
	if s, err := linux.ReadStat(pid); err == nil && s.Start < who.Start {
		return 0, fmt.Errorf("the monitor was restarted while the runtime command ran, and pid %d is not its work: %w", pid, errdefs.ErrUnavailable)
	}
	return pid, nil
}

// Await waits for the command, and kills it at its deadline. It returns an error
// if the outer process saw it fail. The zero Ident has ended unseen.
func (o *Old) Await(ctx context.Context, who record.Ident) error {
	if who.PID == 0 {
		return nil
	}
	pidfd, err := linux.OpenProcess(who.PID, who.Start)
	if errors.Is(err, os.ErrProcessDone) {
		return o.verdict(who)
	}
	if err != nil {
		return err
	}
	defer func() { _ = pidfd.Close() }()
	wake := context.AfterFunc(ctx, func() { _ = pidfd.SetReadDeadline(time.Unix(1, 0)) })
	defer wake()
	_ = pidfd.SetReadDeadline(o.Deadline)
	quitting := o.followQuit(pidfd)
	err = linux.AwaitEnd(pidfd)
	quit := quitting()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		// It lives, so its group is still its own.
		killFamily(who, func() { _ = linux.KillGroup(who.PID) })
	}
	switch {
	case err != nil && quit:
		return fmt.Errorf("the runtime command was killed, as its start was given up: %w", errdefs.ErrPrecondition)
	case err != nil:
		return fmt.Errorf("the runtime command did not end in time and was killed: %w", errdefs.ErrDeadline)
	}
	// Recorded before it is reaped, which its parent does at once.
	for range 100 {
		if s, err := linux.ReadStat(who.PID); linux.NoProcess(err) || err == nil && s.Start != who.Start {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return o.verdict(who)
}

// followQuit wakes who waits for the end of the command when it is given up. What it
// returns ends that, and says whether it was.
func (o *Old) followQuit(pidfd *os.File) (quitting func() bool) {
	over, quit := make(chan struct{}), make(chan bool)
	go func() {
		select {
		case <-o.Quit:
			_ = pidfd.SetReadDeadline(time.Unix(1, 0))
			quit <- true
		case <-over:
			quit <- false
		}
	}()
	return func() bool {
		close(over)
		return <-quit
	}
}

func (o *Old) verdict(who record.Ident) error {
	e, ok := o.Exit(who)
	if !ok || e.Code == 0 {
		return nil
	}
	return fmt.Errorf("the monitor was restarted while the runtime command ran, which ended with code %d: %w", e.Code, errdefs.ErrInternal)
}
