package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
)

var (
	recoverSynced     = failpoint.Register("recover.images-synced")
	recoverSwept      = failpoint.Register("recover.swept")
	recoverReleased   = failpoint.Register("recover.released")
	recoverObserved   = failpoint.Register("recover.observed")
	recoverLooked     = failpoint.Register("recover.container-observed")
	recoverDropped    = failpoint.Register("recover.process-dropped")
	recoverDetached   = failpoint.Register("recover.detached")
	recoverStopped    = failpoint.Register("recover.sandbox-stopped")
	recoverFreed      = failpoint.Register("recover.freed")
	recoverRolledBack = failpoint.Register("recover.container-dropped")
)

const (
	// lookTimeout bounds the recovery of one pod. What could not be observed by
	// then is Unknown, and no other pod waits for it.
	lookTimeout = 20 * time.Second
	// lookers is how many pods are recovered at once if each takes its time.
	lookers = 16
	// longLook is after what a look at a pod seems to wait for something else than
	// a processor, so that the next one begins.
	longLook = 20 * time.Millisecond
)

// recover observes what the records name and makes the records true. It
// deletes nothing but what an operation left half made.
func (c *Core) recover(ctx context.Context) {
	begin := c.now()
	var released, checked, pods errgroup.Group
	released.Go(func() error { // waits for no pod: one of them may hang
		c.release(ctx)
		return nil
	})
	pods.SetLimit(lookers)
	turns := make(turns, max(1, runtime.GOMAXPROCS(0)-1))
	for _, r := range c.inherited {
		pods.Go(func() error {
			defer turns.take()()
			c.recoverInTime(ctx, r)
			return nil
		})
	}
	_ = pods.Wait()
	close(c.looked)
	if n := len(c.inherited); n > 0 {
		c.log.Info("pods of an earlier daemon were looked at", "pods", n, "took", c.now().Sub(begin), "hang", len(c.Recovering()))
	}
	todo := networksOf(c.inherited)
	checked.Go(func() error { // no request waits for it
		c.checkNetworks(ctx, todo)
		return nil
	})
	_ = released.Wait()
	c.inherited = nil
	_ = checked.Wait()
}

// turns leave a processor to those who call meanwhile: looks at pods hardly wait,
// and the first answers of a daemon would have to wait for all of them.
type turns chan struct{}

// take waits for a turn, which ends with the look, or when that is a long one.
func (t turns) take() (end func()) {
	t <- struct{}{}
	over := sync.OnceFunc(func() { <-t })
	long := time.AfterFunc(longLook, over)
	return func() {
		long.Stop()
		over()
	}
}

// recoverInTime recovers one pod as an operation of its own. One that hangs in
// the kernel is left to itself when its time is up, and so is its pod.
func (c *Core) recoverInTime(ctx context.Context, r *pod.Record) {
	inTime, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	t := ops.Task{Key: "recover " + string(r.ID), About: c.aboutPod(ops.Recover, r.ID)}
	_, err := c.inAir.Do(inTime, t, func(ctx context.Context) (string, error) {
		defer c.book.recovered(r.ID)
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		defer c.lookLater(r.ID)
		return "", c.recoverPod(ctx, r)
	})
	// That a daemon leaves before the end is no failure: a command's own daemon
	// often does, and the next one looks again.
	if err != nil && !errors.Is(err, context.Cause(ctx)) {
		c.log.Error("a pod could not be recovered", "pod", r.ID, "error", err)
	}
}

// release gives back what no record knows. What fails is tried again: after a
// reboot, a network's plugins may be there later than this daemon.
func (c *Core) release(ctx context.Context) {
	reconcile := func(ctx context.Context) error { return c.Network.Reconcile(ctx, c.book.live) }
	// The images that are in use count from the first call on, also if it fails.
	collect := func(ctx context.Context) error { return c.Images.SyncUses(ctx, nil) }
	var all errgroup.Group
	for _, s := range []struct {
		what      string
		do, again func(context.Context) error
		place     string
	}{
		{"images of containers of the past", c.syncImages, collect, recoverSynced},
		{"writable layers and files of the past", c.sweep, c.sweep, recoverSwept},
		{"addresses of pods of the past", reconcile, reconcile, recoverReleased},
	} {
		all.Go(func() error { // one that hangs holds no other up
			err := s.do(ctx)
			if err == nil {
				err = failpoint.Hit(s.place)
			}
			if err != nil && ctx.Err() == nil {
				c.log.Error("what an earlier daemon has left cannot all be released; it is tried again", "what", s.what, "error", err)
				c.later.Add("release "+s.what, s.again)
			}
			return nil
		})
	}
	_ = all.Wait()
}

// syncImages tells which images the containers of an earlier daemon use. Until
// then none is deleted from disk; what was asked for meanwhile stands.
func (c *Core) syncImages(ctx context.Context) error {
	uses := map[pod.ContainerID][]string{}
	for _, r := range c.inherited {
		for _, ctr := range r.Containers {
			uses[ctr.ID] = ctr.Images()
		}
	}
	return c.Images.SyncUses(ctx, uses)
}

// sweep deletes the writable layers and checkpoints of containers, and the files
// of pods, that no record knows.
func (c *Core) sweep(ctx context.Context) error {
	var left []pod.ContainerID
	var failed []error
	for _, id := range c.orphans {
		if err := c.Roots.Remove(ctx, id); err != nil {
			left, failed = append(left, id), append(failed, err)
		}
	}
	c.orphans = left
	var strays []pod.ID
	for _, id := range c.strays {
		if err := c.Sandboxes.Remove(ctx, id); err != nil {
			strays, failed = append(strays, id), append(failed, err)
		}
	}
	c.strays = strays
	return errors.Join(append(failed, c.sweepCheckpoints(ctx))...)
}

func (c *Core) recoverPod(ctx context.Context, r *pod.Record) (err error) {
	if err := c.thawLeft(ctx, r); err != nil {
		c.log.Error("a container may be frozen since an earlier daemon was making a checkpoint of it; it is tried again", "pod", r.ID, "error", err)
		c.later.Add("thaw containers of pod "+string(r.ID), func(ctx context.Context) error { return c.thawLeft(ctx, r) })
	}
	for _, ctr := range r.Containers {
		if err := c.recoverContainer(ctx, r, ctr); err != nil {
			c.log.Error("a container could not be recovered", "pod", r.ID, "container", ctr.ID, "error", err)
		}
	}
	if r.Salvaged() {
		return nil // it stays Unknown: what it was asked to be is lost
	}
	if r.State == pod.Exited {
		// A crash may have cut StopPod off; its steps mind no repetition.
		c.book.recovered(r.ID)
		return c.stopPod(ctx, r.ID)
	}
	seen := look(ctx, recoverObserved, func() pod.Seen { return c.observePod(ctx, r) })
	switch pod.Recover(r.State, seen) {
	case pod.Rollback:
		defer c.unmadePod(ctx, r.ID, &err)
		return c.rollBackPod(ctx, r)
	case pod.MarkExited:
		return c.settlePod(ctx, r.ID, pod.Ended, "")
	case pod.ReportUnknown:
		return c.settlePod(ctx, r.ID, pod.Lost, seen.Err.Error())
	}
	if r.State == pod.Unknown {
		return c.settlePod(ctx, r.ID, pod.Found, "")
	}
	return nil
}

// observePod looks at the namespaces and at the pod's own process.
func (c *Core) observePod(ctx context.Context, r *pod.Record) pod.Seen {
	if r.State == pod.Creating {
		return pod.Seen{}
	}
	// Looked at as if the folder were another's: one that hangs must not hold
	// more than its pod.
	folder := cmp.Or(r.Sandbox.Dir, string(r.ID))
	seen, err := hostpath.Look(ctx, folder, func() (pod.Seen, error) { return c.Sandboxes.Observe(ctx, r), nil })
	if err != nil {
		return pod.Seen{Err: err}
	}
	if seen.Err != nil || !seen.Alive || r.Sandbox.Pause == nil {
		return seen
	}
	h, err := c.Handlers.Serving(r.Handler, r.Revision)
	if err != nil {
		return pod.Seen{Err: err}
	}
	return h.Observe(ctx, string(r.ID), r.Sandbox.Pause)
}

// settlePod moves a pod to what was observed. A pod that is Unknown already
// keeps its state and gets the newer reason.
func (c *Core) settlePod(ctx context.Context, id pod.ID, e pod.Event, reason string) error {
	_, err := c.book.change(ctx, id, func(r *pod.Record) error {
		r.Reason = reason
		if e == pod.Lost && r.State == pod.Unknown {
			return nil
		}
		return advance(&r.State, e)
	})
	return err
}

// rollBackPod removes a pod whose making was cut off. The caller of RunPod
// never got its id.
func (c *Core) rollBackPod(ctx context.Context, r *pod.Record) error {
	h, err := c.Handlers.Serving(r.Handler, r.Revision)
	if err != nil {
		return fmt.Errorf("roll back pod %s: %w", r.ID.Short(), err)
	}
	if q, ok := h.(Quitter); ok {
		if err := q.GiveUp(ctx, string(r.ID)); err != nil {
			return err
		}
	}
	if err := c.dropProcess(ctx, h, string(r.ID)); err != nil {
		return err
	}
	if err := failpoint.Hit(recoverDropped); err != nil {
		return err
	}
	if err := c.Network.Detach(ctx, r.ID); err != nil {
		return err
	}
	if err := failpoint.Hit(recoverDetached); err != nil {
		return err
	}
	if err := c.Sandboxes.Stop(ctx, r.ID); err != nil {
		return err
	}
	if err := failpoint.Hit(recoverStopped); err != nil {
		return err
	}
	if err := c.free(ctx, r); err != nil {
		return err
	}
	if err := failpoint.Hit(recoverFreed); err != nil {
		return err
	}
	return c.book.remove(ctx, r.ID)
}

func (c *Core) recoverContainer(ctx context.Context, r *pod.Record, ctr *pod.Container) (err error) {
	if ctr.State == pod.Exited {
		return nil
	}
	h, err := c.Handlers.Serving(r.Handler, r.Revision)
	if err != nil {
		if ctr.State == pod.Creating {
			return err
		}
		return c.loseContainer(ctx, ctr.ID, err)
	}
	if ctr.State == pod.Creating {
		defer c.unmadeContainer(ctx, ctr.ID, &err)
		return c.rollBackContainer(ctx, h, ctr.ID)
	}
	seen := look(ctx, recoverLooked, func() pod.Seen { return h.Observe(ctx, string(ctr.ID), ctr.Process) })
	switch pod.Recover(ctr.State, seen) {
	case pod.MarkStarted:
		return c.adoptStarted(ctx, ctr.ID, seen)
	case pod.MarkExited:
		c.exited(string(ctr.ID), c.exitOf(seen))
	case pod.ReportUnknown:
		return c.loseContainer(ctx, ctr.ID, seen.Err)
	case pod.Adopt:
		if ctr.State == pod.Unknown {
			return c.foundAgain(ctx, ctr.ID, seen)
		}
	}
	return nil
}

// foundAgain notes that a lost container was observed alive.
func (c *Core) foundAgain(ctx context.Context, id pod.ContainerID, seen pod.Seen) error {
	_, err := c.book.changeContainer(ctx, id, func(_ *pod.Record, ctr *pod.Container) error {
		ctr.Reason, ctr.Message = "", ""
		if ctr.Process == nil && seen.Process != nil {
			ctr.Process, ctr.StartedAt = seen.Process, seen.Process.StartedAt
		}
		return advance(&ctr.State, pod.Found)
	})
	return err
}

// rollBackContainer removes a container whose making was cut off.
func (c *Core) rollBackContainer(ctx context.Context, h Handler, id pod.ContainerID) error {
	if err := c.dropProcess(ctx, h, string(id)); err != nil {
		return err
	}
	if err := failpoint.Hit(recoverRolledBack); err != nil {
		return err
	}
	if err := c.freeContainer(ctx, id); err != nil {
		return err
	}
	return c.forgetContainer(ctx, id)
}

// adoptStarted completes a start whose commit was cut off.
func (c *Core) adoptStarted(ctx context.Context, id pod.ContainerID, seen pod.Seen) error {
	_, err := c.book.changeContainer(ctx, id, func(_ *pod.Record, ctr *pod.Container) error {
		ctr.Process, ctr.StartedAt = seen.Process, c.now()
		if seen.Process != nil && !seen.Process.StartedAt.IsZero() {
			ctr.StartedAt = seen.Process.StartedAt
		}
		if err := advance(&ctr.State, pod.Started); err != nil {
			return err
		}
		if !seen.Alive {
			return end(ctr, c.exitOf(seen))
		}
		return nil
	})
	return err
}

// loseContainer notes that a container could not be observed.
func (c *Core) loseContainer(ctx context.Context, id pod.ContainerID, cause error) error {
	_, err := c.book.changeContainer(ctx, id, func(_ *pod.Record, ctr *pod.Container) error {
		ctr.Reason, ctr.Message = pod.ReasonUnknown, cause.Error()
		if ctr.State == pod.Unknown {
			return nil
		}
		return advance(&ctr.State, pod.Lost)
	})
	return err
}
