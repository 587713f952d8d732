package lifecycle

import (
	"time"

	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
)

// Operations returns what is in flight, the oldest first.
func (c *Core) Operations() []ops.Operation { return c.inAir.List() }

// Past returns the last operations on a pod and its containers and the last pulls
// for it, as far as they are remembered, the oldest first.
func (c *Core) Past(r *pod.Record) []ops.Ended { return c.past.Of(r.ID, r.Config.Metadata) }

// Pulled is told of each wait for the pull of an image that is over. The core
// pulls none itself.
func (c *Core) Pulled(e ops.Ended) {
	if len(e.For) == 1 {
		e.Pod = c.book.named(e.For[0])
	}
	c.ended(e)
}

// StartMedians is how long the start of a pod with one container takes, by handler,
// as far as some have been started lately.
func (c *Core) StartMedians() map[string]time.Duration { return c.past.StartMedians() }

// ended sees how long each stage of an operation took. The handler is that of
// the pod, or as the request names it where no pod was made.
func (c *Core) ended(e ops.Ended) {
	if r, err := c.book.pod(e.Pod); err == nil {
		e.Handler = r.Handler
	}
	c.log.Debug("operation ended", "verb", e.Verb+" "+e.Kind, "name", e.Name, "pod", e.Pod, "container", e.Container, "stages", e.Steps)
	c.past.Add(e)
	if c.Drivers.Ended != nil {
		c.Drivers.Ended(e)
	}
}

// aboutPod describes an operation on a pod that may or may not exist.
func (c *Core) aboutPod(verb string, id pod.ID) ops.About {
	a := ops.About{Verb: verb, Kind: ops.KindPod, Name: id.Short(), Pod: id}
	if r, err := c.book.pod(id); err == nil {
		a.Name = podName(r.Config.Metadata, id)
	}
	return a
}

// aboutContainer describes an operation on a container that may or may not exist.
func (c *Core) aboutContainer(verb string, id pod.ContainerID) ops.About {
	a := ops.About{Verb: verb, Kind: ops.KindContainer, Name: id.Short(), Container: id}
	if r, ctr, err := c.book.container(id); err == nil {
		a.Pod = r.ID
		a.Name = podName(r.Config.Metadata, r.ID) + "/" + ctr.Config.Metadata.Name
	}
	return a
}

// podName is a pod's name for people. One whose record cannot be read has only
// its id.
func podName(m pod.Metadata, id pod.ID) string {
	if m.Name == "" {
		return id.Short()
	}
	return m.Namespace + "/" + m.Name
}
