// Package group gives the files of a volume to a group, which may take hours where there are very
// many. Which volumes are given to which group is not its concern.
package group

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

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

// Change is what is to be done with a volume. All that it holds then belongs to the group, can be
// read by it, and written unless it is ReadOnly, and what is made in it later belongs to it as well.
type Change struct {
	Group      int
	ReadOnly   bool
	OnMismatch bool // a volume whose own folder is right is not looked through
	// Limit is how long it may make no progress; 0 is no limit.
	Limit time.Duration
	// Tell is told now and then how many files were looked at; nil tells nobody.
	Tell func(files int)
	// May says whether the volume may be given at all, once no other group is being given it; nil
	// is always.
	May func(context.Context) (bool, error)
}

// Refusal counts the files that a file system has not given to a group.
type Refusal struct {
	Files int
	First error
}

// Give gives a volume to a group. The folder itself is last, so that an interrupted change is seen
// with OnMismatch. Files that are right are only looked at, so that what an earlier attempt has
// done is not lost.
func (c Change) Give(ctx context.Context, dir string) (Refusal, error) {
	ctx, alive, cancel := whileAlive(ctx, c.Limit)
	defer cancel()
	work := change{gid: c.Group, bits: groupWrites, onMismatch: c.OnMismatch, alive: alive, tell: c.Tell, due: time.Now().Add(firstProgress)}
	if c.ReadOnly {
		work.bits = groupReads
	}
	done, err := work.turn(ctx, dir)
	if err != nil {
		return Refusal{}, fmt.Errorf("wait until another pod's group has it: %w", err)
	}
	defer done()
	if c.May != nil {
		if yes, err := c.May(ctx); err != nil || !yes {
			return Refusal{}, err
		}
	}
	refused, err := hostpath.Look(ctx, dir, func() (Refusal, error) {
		err := work.apply(ctx, dir)
		return work.refused, err
	})
	if err != nil {
		return Refusal{}, fmt.Errorf("give it to group %d (fsGroup): %w", c.Group, err)
	}
	return refused, nil
}

// given are the folders that are given to a group now: pods share those of local volumes.
// The one at it counts the files that it has looked at.
var given struct {
	folders keylock.Locks[string]
	files   sync.Map // *atomic.Int64, by folder
}

// turn waits until no other pod's group is given a folder, for as long as that gets on.
func (c *change) turn(ctx context.Context, dir string) (done func(), err error) {
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
func (c *change) follow(ctx context.Context, dir string, due time.Time) {
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

// whileAlive is a context that ends when alive was not called for that long.
func whileAlive(ctx context.Context, limit time.Duration) (context.Context, func(), context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	if limit == 0 {
		return ctx, func() {}, func() { end(nil) }
	}
	timer := time.AfterFunc(limit, func() { end(errStuck) })
	return ctx, func() { timer.Reset(limit) }, func() {
		end(nil)
		timer.Stop()
	}
}

type change struct {
	gid        int
	bits       uint32 // of files
	onMismatch bool
	refused    Refusal

	alive func()          // called now and then while it gets on
	files int             // that were looked at
	shown *atomic.Int64   // the same, for who waits
	seen  time.Time       // when alive was called last
	due   time.Time       // when to tell how far it is
	tell  func(files int) // nil tells nobody
}

func (c *change) apply(ctx context.Context, dir string) error {
	if c.onMismatch {
		var st unix.Stat_t
		if err := unix.Lstat(dir, &st); err != nil {
			return err
		}
		if int(st.Gid) == c.gid && c.mode(&st) == st.Mode&0o7777 {
			return nil
		}
	}
	return (&tree.Walk{Visit: c.visit}).Run(ctx, dir)
}

// mode is what a file's mode is to be.
func (c *change) mode(st *unix.Stat_t) uint32 {
	mode := st.Mode&0o7777 | c.bits
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		mode |= groupEnters | unix.S_ISGID
	}
	return mode
}

// visit works on the place that was looked at, whatever has its name by now. A
// link is given to the group itself.
func (c *change) visit(n *tree.Node) error {
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

func (c *change) step(now time.Time) {
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

func (c *change) refuse(err error) {
	c.refused.Files++
	if c.refused.First == nil {
		c.refused.First = err
	}
}
