package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/keylock"
	"fairlead.run/internal/node/volume/tree"
)

// What the pod's group may do with files of a volume, by whether it is writable.
const (
	groupReads  = 0o440
	groupWrites = 0o660
	groupEnters = 0o110 // folders
)

// setGroup gives a volume to the pod's group: what it holds belongs to the group,
// can be read and written by it, and new files do too. The folder itself is last,
// so that an interrupted change is seen by OnRootMismatch.
//
// It may take hours where there are many files, and goes on for as long as it gets on: a file
// system that does not answer for as long as Around.Limit is given up. Files that are right are
// only looked at, so that what an earlier attempt has done is not lost.
func (s *Set) setGroup(ctx context.Context, dir string, readOnly bool) error {
	return s.setGroupIf(ctx, dir, readOnly, func(context.Context) (bool, error) { return true, nil })
}

// setGroupIf asks, once no other pod's group is given the volume, whether it may be given at all.
func (s *Set) setGroupIf(ctx context.Context, dir string, readOnly bool, may func(context.Context) (bool, error)) error {
	g := s.group()
	if g == nil {
		return nil
	}
	ctx, alive, cancel := s.whileAlive(ctx)
	defer cancel()
	change := groupChange{gid: int(*g), bits: groupWrites, alive: alive}
	if s.around.Progress != nil {
		change.tell, change.due = func(files int) { s.around.Progress(dir, files) }, time.Now().Add(firstProgress)
	}
	if readOnly {
		change.bits = groupReads
	}
	if p := s.spec.Pod.Spec.SecurityContext.FSGroupChangePolicy; p != nil {
		change.onMismatch = *p == corev1.FSGroupChangeOnRootMismatch
	}
	done, err := change.turn(ctx, dir)
	if err != nil {
		return fmt.Errorf("wait until another pod's group has it: %w", err)
	}
	defer done()
	if yes, err := may(ctx); err != nil || !yes {
		return err
	}
	refused, err := hostpath.Look(ctx, dir, func() (refusal, error) {
		err := change.apply(ctx, dir)
		return change.refused, err
	})
	if err != nil {
		return fmt.Errorf("give it to group %d (fsGroup): %w", *g, err)
	}
	delete(s.refused, dir)
	if refused.files > 0 {
		s.refused[dir] = fmt.Errorf("%d files of %s could not be given to group %d (fsGroup) with its rights, the first of them: %w", refused.files, dir, *g, refused.first)
	}
	return nil
}

// given are the folders that are given to a group now: pods share those of local volumes.
// The one at it counts the files that it has looked at.
var given struct {
	folders keylock.Locks[string]
	files   sync.Map // *atomic.Int64, by folder
}

// turn waits until no other pod's group is given a folder, for as long as that gets on.
func (c *groupChange) turn(ctx context.Context, dir string) (done func(), err error) {
	waits, stop := context.WithCancel(ctx)
	defer stop()
	go c.follow(waits, dir, c.due)
	unlock, err := given.folders.Lock(ctx, dir)
	if err != nil {
		return nil, err
	}
	c.shown = &atomic.Int64{}
	given.files.Store(dir, c.shown)
	return func() {
		given.files.Delete(dir)
		unlock()
	}, nil
}

// follow sees how far the one at it is, until ctx ends, and tells of that from due on.
func (c *groupChange) follow(ctx context.Context, dir string, due time.Time) {
	last := int64(-1)
	ticks := time.NewTicker(aliveEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks.C:
			shown, ok := given.files.Load(dir)
			if !ok {
				continue
			}
			if n := shown.(*atomic.Int64).Load(); n != last {
				last = n
				c.alive()
			}
			if c.tell != nil && !now.Before(due) {
				due = now.Add(nextProgress)
				c.tell(int(last))
			}
		}
	}
}

// When somebody is told how far a change is, as by a kubelet.
const (
	firstProgress = 30 * time.Second
	nextProgress  = time.Minute
)

// errStuck ends a change that does not get on.
var errStuck = fmt.Errorf("no file could be looked at: %w", context.DeadlineExceeded)

// whileAlive is a context that ends when alive was not called for as long as Around.Limit.
func (s *Set) whileAlive(ctx context.Context) (context.Context, func(), context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	if s.around.Limit == 0 {
		return ctx, func() {}, func() { end(nil) }
	}
	timer := time.AfterFunc(s.around.Limit, func() { end(errStuck) })
	return ctx, func() { timer.Reset(s.around.Limit) }, func() {
		end(nil)
		timer.Stop()
	}
}

// giveAgain is how long a volume may take to be given to a group that has it already.
const giveAgain = 5 * time.Second

// give gives a volume to the pod's group that is to be. Where a sandbox is there, that was done
// before it was made; files that a driver has written since are seen to, and a large volume does
// not hold up containers that run.
func (s *Set) give(ctx context.Context, m *mounted) error {
	set := func(ctx context.Context) error { return s.setGroup(ctx, m.path, m.readOnly) }
	switch {
	case m.local != nil && s.group() == nil:
		_, err := s.mayGive(ctx, m)
		return err
	case m.local != nil:
		set = func(ctx context.Context) error {
			return s.setGroupIf(ctx, m.path, m.readOnly, func(ctx context.Context) (bool, error) { return s.mayGive(ctx, m) })
		}
	case !m.give:
		return nil
	}
	if s.around.Runs {
		within, cancel := context.WithTimeout(ctx, giveAgain)
		defer cancel()
		if err := set(within); err != nil && within.Err() == nil {
			s.refused[m.path] = err
		}
		return ctx.Err()
	}
	return set(ctx)
}

// Refused is what the file systems of volumes did not let the pod's group have. The pod has
// them all the same, as a server may let its users in by other rules: NFS that squashes root,
// or snapshots that are always read-only.
func (s *Set) Refused() error { return errors.Join(slices.Collect(maps.Values(s.refused))...) }

// refusal counts the files that a file system has not given to a group.
type refusal struct {
	files int
	first error
}

type groupChange struct {
	gid        int
	bits       uint32 // of files
	onMismatch bool
	refused    refusal

	alive func()          // called now and then while it gets on
	files int             // that were looked at
	shown *atomic.Int64   // the same, for who waits
	seen  time.Time       // when alive was called last
	due   time.Time       // when to tell how far it is
	tell  func(files int) // nil tells nobody
}

func (c *groupChange) apply(ctx context.Context, dir string) error {
	if c.onMismatch {
		var st unix.Stat_t
		if err := unix.Lstat(dir, &st); err != nil {
			return err
		}
		if int(st.Gid) == c.gid && c.mode(&st) == st.Mode&0o7777 {
			return nil
		}
	}
	return (&tree.Walk{Visit: c.change}).Run(ctx, dir)
}

// mode is what a file's mode is to be.
func (c *groupChange) mode(st *unix.Stat_t) uint32 {
	mode := st.Mode&0o7777 | c.bits
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		mode |= groupEnters | unix.S_ISGID
	}
	return mode
}

// change works on the place that was looked at, whatever has its name by now. A
// link is given to the group itself.
func (c *groupChange) change(n *tree.Node) error {
	c.step(time.Now())
	mode := c.mode(&n.Stat) // changing the owner takes bits away
	if int(n.Stat.Gid) != c.gid {
		if err := unix.Fchownat(n.FD, "", -1, c.gid, unix.AT_EMPTY_PATH); err != nil {
			c.refuse(fmt.Errorf("change the group of %s: %w", n.Name, err))
			return nil
		}
	} else if mode == n.Stat.Mode&0o7777 {
		return nil
	}
	if n.Stat.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil
	}
	if err := unix.Chmod(n.Path(), mode); err != nil {
		c.refuse(fmt.Errorf("change the mode of %s: %w", n.Name, err))
	}
	return nil
}

// aliveEvery is often enough to say that a change gets on.
const aliveEvery = time.Second

func (c *groupChange) step(now time.Time) {
	c.files++
	c.shown.Store(int64(c.files))
	if now.Sub(c.seen) >= aliveEvery {
		c.seen = now
		c.alive()
	}
	if c.tell != nil && !now.Before(c.due) {
		c.due = now.Add(nextProgress)
		c.tell(c.files)
	}
}

func (c *groupChange) refuse(err error) {
	c.refused.files++
	if c.refused.first == nil {
		c.refused.first = err
	}
}
