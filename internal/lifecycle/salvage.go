package lifecycle

import (
	"context"

	"fairlead.run/internal/pod"
)

// salvage takes in the pods that have no readable record, from what drivers
// still have of them: they can be seen, stopped and removed. It says whether
// everything that is there has an owner now.
func (c *Core) salvage(ctx context.Context, broken map[pod.ID]error) (all bool) {
	known := func(id string) bool {
		if _, err := c.book.pod(pod.ID(id)); err == nil {
			return true
		}
		_, _, err := c.book.container(pod.ContainerID(id))
		return err == nil
	}
	all = true
	var traces []pod.Trace
	for _, t := range c.Tracers {
		found, err := t.Traces(ctx, known)
		if err != nil {
			all = false
			c.log.Error("not everything on this host could be told whose it is; fairlead fsck lists it", "error", err)
		}
		traces = append(traces, found...)
	}
	for _, r := range pod.Salvage(broken, traces) {
		all = false
		c.log.Error("a pod has no readable record; stop and remove it to free what it holds",
			"pod", r.ID, "name", r.Config.Metadata.Name, "containers", len(r.Containers), "reason", r.Reason)
		c.book.adopt(r)
	}
	return all
}
