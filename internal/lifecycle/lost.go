package lifecycle

import (
	"context"
	"fmt"
	"time"

	"fairlead.run/internal/pod"
)

// againTimeout bounds another look at one pod, during which its other operations
// wait. The looks at other pods do not.
const againTimeout = 2 * time.Second

// lookLater has a pod observed again that could not be observed, wholly or in
// part: what was in the way may go.
func (c *Core) lookLater(id pod.ID) {
	if r, err := c.book.pod(id); err != nil || !lost(r) {
		return
	}
	c.later.Add("look at pod "+string(id), func(ctx context.Context) error { return c.lookAgain(ctx, id) })
}

func (c *Core) lookAgain(ctx context.Context, id pod.ID) error {
	ctx, cancel := context.WithTimeout(ctx, againTimeout)
	defer cancel()
	unlock, err := c.locks.Lock(ctx, string(id))
	if err != nil {
		return err
	}
	defer unlock()
	r, err := c.book.pod(id)
	if err != nil || !lost(r) {
		return ignoreUnknown(err)
	}
	if err := c.recoverPod(ctx, r); err != nil {
		return err
	}
	if r, err = c.book.pod(id); err == nil && lost(r) {
		return fmt.Errorf("pod %s or a container of it still cannot be observed", id.Short())
	}
	return ignoreUnknown(err)
}

// lost says whether the pod or a container of it is Unknown and can become
// known again, which one whose record was lost cannot.
func lost(r *pod.Record) bool {
	if r.Salvaged() || r.State == pod.Exited {
		return false
	}
	for _, ctr := range r.Containers {
		if ctr.State == pod.Unknown {
			return true
		}
	}
	return r.State == pod.Unknown
}
