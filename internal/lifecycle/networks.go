package lifecycle

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

const (
	// checkDelay lets those who have waited for the daemon go first: a check may
	// cost a process for each plugin of the network. A daemon that serves one
	// command only has ended by then.
	checkDelay = 5 * time.Second
	// checkPause is the time to the next check of what was not in order.
	checkPause = time.Minute
	// checkLimit bounds the check of one pod, and checkers is how many are checked
	// at once.
	checkLimit = 10 * time.Second
	checkers   = 2
)

// unclear stands for what could not be found out, for whatever reason: some
// reasons read differently each time.
const unclear = "unclear"

// networks are pods whose networks are to be found in order, with what was said
// of each when it was last checked; "" before that.
type networks map[pod.ID]string

// networksOf are those of pods that have one of their own.
func networksOf(records []*pod.Record) networks {
	out := networks{}
	for _, r := range records {
		if !r.Config.HostNetwork() && !r.Salvaged() {
			out[r.ID] = ""
		}
	}
	return out
}

// checkNetworks checks the networks of the pods of an earlier daemon: while none
// was there, nobody may have seen what was done to them. What is not in order is
// told and noted in the record, and checked until it is. The pods run meanwhile.
func (c *Core) checkNetworks(ctx context.Context, todo networks) {
	for pause := checkDelay; len(todo) > 0; pause = checkPause {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		todo = c.checkOnce(ctx, todo)
	}
}

// checkOnce checks some pods at a time and returns those to be checked again.
func (c *Core) checkOnce(ctx context.Context, todo networks) networks {
	var mu sync.Mutex
	left := networks{}
	var g errgroup.Group
	g.SetLimit(checkers)
	for id, before := range todo {
		g.Go(func() error {
			if found := c.checkNetwork(ctx, id, before); found != "" {
				mu.Lock()
				defer mu.Unlock()
				left[id] = found
			}
			return nil
		})
	}
	_ = g.Wait()
	return left
}

// checkNetwork says what is not in order with the network of a pod, and tells of
// it if that is not what was found before.
func (c *Core) checkNetwork(ctx context.Context, id pod.ID, before string) (found string) {
	r, err := c.book.pod(id)
	switch {
	case err != nil || r.State == pod.Exited:
		return ""
	case r.State != pod.Running:
		return unclear // what it lacks is known, or looked for
	}
	found, err = c.networkFault(ctx, r)
	switch {
	case ctx.Err() != nil || found == before && (found == unclear || found == r.NetworkFault):
		return found
	case found == unclear && !errors.Is(err, errdefs.ErrNotFound): // which a pod has that is just being stopped
		c.log.Warn("it could not be found out whether the network of a pod is in order; it is tried again", "pod", id, "error", err)
		return found
	case found == unclear || found == "" && r.NetworkFault == "":
		return found
	}
	if err := c.noteFault(ctx, id, &found); ctx.Err() != nil {
		return found
	} else if err != nil {
		c.log.Error("what is wrong with the network of a pod could not be noted; it is tried again", "pod", id, "error", err)
		return unclear
	}
	return found
}

func (c *Core) networkFault(ctx context.Context, r *pod.Record) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	err := c.Network.Check(ctx, r)
	switch {
	case err == nil:
		return "", nil
	case errors.Is(err, errdefs.ErrPrecondition):
		return err.Error(), err
	}
	return unclear, err
}

// noteFault writes down what was found, if it still stands while no operation on
// the pod is under way: one that is being stopped loses its network first.
func (c *Core) noteFault(ctx context.Context, id pod.ID, found *string) error {
	inTime, cancel := context.WithTimeout(ctx, 2*checkLimit)
	defer cancel()
	return ignoreUnknown(c.Hold(inTime, id, "", func(r *pod.Record) (err error) {
		if r.State != pod.Running {
			*found = ""
			return nil
		}
		if *found, err = c.networkFault(inTime, r); *found == unclear {
			return err
		}
		_, err = c.book.change(ctx, id, func(r *pod.Record) error {
			r.NetworkFault = *found
			return nil
		})
		if err == nil && *found != "" {
			c.log.Error("the network of a pod is not in order; fairlead fsck says what helps", "pod", id, "fault", *found)
		} else if err == nil {
			c.log.Info("the network of a pod is in order again", "pod", id)
		}
		return err
	}))
}
