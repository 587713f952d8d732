package ops

import (
	"cmp"
	"slices"
	"time"

	"fairlead.run/internal/pod"
)

// The verbs of operations.
const (
	Run     = "run"
	Create  = "create"
	Start   = "start"
	Stop    = "stop"
	Remove  = "remove"
	Update  = "update"
	Exec    = "exec in"
	Attach  = "attach to"
	Reopen  = "reopen log of"
	Recover = "recover"
	Tidy    = "tidy up after"
	Tell    = "tell NRI plugins of"
	// Checkpoint keeps containers frozen for a while.
	Checkpoint = "checkpoint"
	Restore    = "restore"
	// TakeBack is what follows a failed run or create that left something.
	TakeBack = "take back"
	// Pull is the image store's, and in no ledger of this package.
	Pull = "pull"
)

// The kinds of objects that operations are on.
const (
	KindPod       = "pod"
	KindContainer = "container"
	KindImage     = "image"
)

// About says what an operation does to what.
type About struct {
	Verb string // "run", "create"
	Kind string // "pod", "container" or "image"
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

// List returns what is in flight, the oldest first.
func (l *Ledger) List() []Operation {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Operation, 0, len(l.all))
	for op := range l.all {
		at := op.at.Load()
		out = append(out, Operation{
			About: op.About, Stage: at.stage, Began: op.began, Entered: at.since, Waiting: int(op.waiting.Load()),
		})
	}
	slices.SortFunc(out, func(a, b Operation) int {
		return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.String(), b.String()))
	})
	return out
}
