package lifecycle

import (
	"cmp"
	"slices"
	"time"

	"fairlead.run/internal/pod"
)

// The verbs of operations.
const (
	verbRun     = "run"
	verbCreate  = "create"
	verbStart   = "start"
	verbStop    = "stop"
	verbRemove  = "remove"
	verbUpdate  = "update"
	verbExec    = "exec in"
	verbAttach  = "attach to"
	verbReopen  = "reopen log of"
	verbRecover = "recover"
	verbTidy    = "tidy up after"
)

// The kinds of objects that operations are on.
const (
	KindPod       = "pod"
	KindContainer = "container"
)

// About says what an operation does to what.
type About struct {
	Verb string // "run", "create"
	Kind string // "pod" or "container"
	// Name is the object's for people: "default/web", or "default/web/main" for
	// a container.
	Name      string
	Pod       pod.ID          // of the object, or the pod that the object is in; empty if it has none yet
	Container pod.ContainerID // of the object; empty for a pod, or if it has none yet
}

// String is for errors: "run pod default/web".
func (a About) String() string { return a.Verb + " " + a.Kind + " " + a.Name }

// Operation is one thing that is being done at this moment.
type Operation struct {
	About
	Stage   string
	Began   time.Time
	Entered time.Time // the stage
	Waiting int       // callers who wait for the end
}

// Operations returns what is in flight, the oldest first.
func (c *Core) Operations() []Operation { return c.inAir.list() }

func (f *flight) list() []Operation {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]Operation, 0, len(f.all))
	for op := range f.all {
		at := op.stage.Load()
		out = append(out, Operation{
			About: op.about, Stage: at.name, Began: op.began, Entered: at.since, Waiting: int(op.waiting.Load()),
		})
	}
	slices.SortFunc(out, func(a, b Operation) int {
		return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.String(), b.String()))
	})
	return out
}

// aboutPod describes an operation on a pod that may or may not exist.
func (c *Core) aboutPod(verb string, id pod.ID) About {
	a := About{Verb: verb, Kind: KindPod, Name: id.Short(), Pod: id}
	if r, err := c.book.pod(id); err == nil {
		a.Name = podName(r.Config.Metadata, id)
	}
	return a
}

// aboutContainer describes an operation on a container that may or may not exist.
func (c *Core) aboutContainer(verb string, id pod.ContainerID) About {
	a := About{Verb: verb, Kind: KindContainer, Name: id.Short(), Container: id}
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
