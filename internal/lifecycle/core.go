package lifecycle

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.run/internal/keylock"
	"fairlead.run/internal/lifecycle/again"
	"fairlead.run/internal/lifecycle/history"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/stage"
)

// How long operations may go on when the core is told to end, and how long they
// may then take to give up.
const (
	drainTime = 5 * time.Second
	leaveTime = 5 * time.Second
)

// Drivers are what the core works with. All are required but Tracers, Plugins,
// Checkpoints and Ended.
type Drivers struct {
	Store     Store
	Sandboxes Sandboxes
	Network   Network
	Images    Images
	Roots     Roots
	Labels    Labels
	Bundles   Bundles
	Handlers  Handlers
	Streams   Streams
	Exits     Exits
	Tracers   []Tracer
	Plugins   Plugins
	// Checkpoints is nil where none are made.
	Checkpoints Checkpoints
	// Ended, unless nil, is told of each operation that ended.
	Ended func(ops.Ended)
}

// Core runs pods. Make one with New and give it a goroutine with Run.
type Core struct {
	Drivers
	log  *slog.Logger
	now  func() time.Time
	book *book
	// inherited are the records of an earlier process, for Run to recover.
	// What is made from now on is none of its business.
	inherited []*pod.Record
	orphans   []pod.ContainerID // without a record, but with a writable layer
	strays    []pod.ID          // without a record, but with files
	looked    chan struct{}     // closed when all inherited were looked at
	inAir     ops.Ledger
	past      history.History
	later     *again.List
	// locks serialises the operations on one pod or one container.
	locks keylock.Locks[string]
}

// New reads the records and returns a core that serves at once. What the
// records say is only believed after Run has looked; until then a request for
// a pod waits for that pod, and for no other.
func New(ctx context.Context, d Drivers, log *slog.Logger) (*Core, error) {
	records, broken, err := d.Store.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("load pod records: %w", err)
	}
	if d.Plugins == nil {
		d.Plugins = nobody{}
	}
	c := &Core{Drivers: d, log: log, now: time.Now, book: newBook(d.Store), later: again.New(), looked: make(chan struct{})}
	c.inAir.Trace = c.ended
	for _, r := range records {
		c.book.adopt(r)
	}
	all := c.salvage(ctx, broken)
	c.inherited = c.book.list()
	if all { // else what has no owner may be that of a pod or container without a record
		c.findOrphans()
	}
	return c, nil
}

// findOrphans notes the writable layers and the files of nobody, before anybody
// can make new ones.
func (c *Core) findOrphans() {
	live := map[pod.ContainerID]bool{}
	for _, r := range c.inherited {
		for _, ctr := range r.Containers {
			live[ctr.ID] = true
		}
	}
	var err error
	if c.orphans, err = c.Roots.Leftovers(live); err != nil {
		c.log.Error("writable layers of the past cannot be listed", "error", err)
	}
	recorded := func(id pod.ID) bool {
		_, err := c.book.pod(id)
		return err == nil
	}
	if c.strays, err = c.Sandboxes.Leftovers(recorded); err != nil {
		c.log.Error("files of pods of the past cannot be listed", "error", err)
	}
}

// Run recovers what the records name, then follows the ends of processes until
// ctx ends. It blocks until everything it started is done.
func (c *Core) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		c.recover(ctx)
		return nil
	})
	g.Go(func() error { return c.later.Run(ctx, c.log) })
	g.Go(func() error {
		err := c.Exits.Run(ctx, c.exited)
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("follow the ends of processes: %w", err)
	})
	err := g.Wait()
	for _, op := range c.inAir.End(drainTime, leaveTime) {
		c.log.Error("an operation is left behind; the next start sees to what it has half done",
			"operation", op.String(), "stage", op.Stage, "since", op.Began)
	}
	return err
}

// Pods returns every pod, the oldest first. The records are shared and must
// not be modified.
func (c *Core) Pods() []*pod.Record { return c.book.list() }

// Follow tells of what happens to pods and containers from now on; see events.Feed.
func (c *Core) Follow() (seen <-chan pod.Notice, stop func()) { return c.book.feed.Follow() }

// Recovering are the pods that were not observed yet since the daemon started.
func (c *Core) Recovering() []pod.ID { return c.book.unobserved() }

// Looked is closed when the pods of an earlier daemon have been looked at, if
// Run was called.
func (c *Core) Looked() <-chan struct{} { return c.looked }

// FindPod returns the pod with that id, or with the only id that begins so.
func (c *Core) FindPod(id string) (*pod.Record, error) { return c.book.findPod(id) }

// FindContainer returns the container with that id, or with the only id that
// begins so, and its pod.
func (c *Core) FindContainer(id string) (*pod.Record, *pod.Container, error) {
	return c.book.findContainer(id)
}

// settled returns a container once its pod was recovered.
func (c *Core) settled(ctx context.Context, id pod.ContainerID) (*pod.Record, *pod.Container, error) {
	r, _, err := c.book.container(id)
	if err != nil {
		return nil, nil, err
	}
	if err := c.book.await(ctx, r.ID); err != nil {
		return nil, nil, err
	}
	return c.book.container(id)
}

// own is settled for who is about to change the container: nobody else does
// until unlock.
func (c *Core) own(ctx context.Context, id pod.ContainerID) (r *pod.Record, ctr *pod.Container, unlock func(), err error) {
	if r, _, err = c.book.container(id); err != nil {
		return nil, nil, nil, err
	}
	if unlock, err = c.begin(ctx, r.ID, string(id)); err != nil {
		return nil, nil, nil, err
	}
	if r, ctr, err = c.book.container(id); err != nil {
		unlock()
		return nil, nil, nil, err
	}
	return r, ctr, unlock, nil
}

// begin waits for the pod's recovery and takes the lock named key.
func (c *Core) begin(ctx context.Context, id pod.ID, key string) (unlock func(), err error) {
	stage.Enter(ctx, "wait for its turn")
	if err := c.book.await(ctx, id); err != nil {
		return nil, err
	}
	return c.locks.Lock(ctx, key)
}
