package garbage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/lasting"
)

// The reasons of events about failures, as a kubelet has them.
const (
	ImageGCFailed       = "ImageGCFailed"
	FreeDiskSpaceFailed = "FreeDiskSpaceFailed"
	ContainerGCFailed   = "ContainerGCFailed"
)

// How often, and how long.
const (
	deadInterval  = time.Minute
	imageInterval = 5 * time.Minute
	callLimit     = 2 * time.Minute // of one call of the runtime
	lookLimit     = 10 * time.Second
	atATime       = 4 // removals
)

// Config is what a Collector works with. Runtime, Images, Wanted and
// ImagePolicy are required.
type Config struct {
	Runtime runtimeapi.RuntimeServiceClient
	Images  runtimeapi.ImageServiceClient
	// Wanted says that there is a pod, or that one may still be coming: it is
	// true for each as long as not all sources have told of their pods, and for a
	// pod that is being ended until nothing of it runs.
	Wanted func(uid string) bool
	// Mine says of a sandbox that it may be removed, with its containers. Nil means
	// that all may.
	Mine func(*runtimeapi.PodSandbox) bool
	// Finished says of a pod that is wanted that nothing of it will run any more.
	// Nil means that none is.
	Finished        func(uid string) bool
	ImagePolicy     ImagePolicy
	ContainerPolicy ContainerPolicy // the zero value keeps no container that has ended
	// Keep are the images, by id or any name that runtimes list, that pods need beside
	// those of the containers that are there, as for volumes. May be nil.
	Keep func() []string
	// Needed is when a pod last asked for an image, which may have no container
	// yet: images.Manager.LastNeeded. May be nil.
	Needed func(id string) time.Time
	// Left is told which images are there after each pass, of a list that was
	// asked for then: images.Manager.Prune. May be nil.
	Left func(ids []string, asked time.Time)
	// Logs has a folder for each pod, whose name is its UID or ends with it after
	// a "_". Empty means that there is none to remove.
	Logs string
	// Measure is for tests; nil asks the kernel.
	Measure func(ctx context.Context, path string) (Disk, error)
	// Failed is told of each failure, and again now and then while it lasts. Nil
	// means that it goes to Log.
	Failed func(reason string, err error)
	Log    *slog.Logger
}

// Collector removes garbage.
type Collector struct {
	cfg Config

	images sync.Mutex // held for a pass through images
	dead   sync.Mutex // held for a pass through containers

	mu   sync.Mutex
	seen tracked
	told map[string]*lasting.Failure // by reason
}

// New makes a Collector. It fails if the policy makes no sense.
func New(c Config) (*Collector, error) {
	if err := c.ImagePolicy.check(); err != nil {
		return nil, err
	}
	if c.Finished == nil {
		c.Finished = func(string) bool { return false }
	}
	if c.Keep == nil {
		c.Keep = func() []string { return nil }
	}
	if c.Needed == nil {
		c.Needed = func(string) time.Time { return time.Time{} }
	}
	if c.Left == nil {
		c.Left = func([]string, time.Time) {}
	}
	if c.Measure == nil {
		c.Measure = measure
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Failed == nil {
		c.Failed = func(reason string, err error) { c.Log.Warn("Garbage is left.", "reason", reason, "error", err) }
	}
	return &Collector{cfg: c, seen: tracked{}, told: map[string]*lasting.Failure{}}, nil
}

// Run removes garbage until ctx ends: containers, sandboxes and logs each
// minute, images every five.
func (c *Collector) Run(ctx context.Context) error {
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() { every(ctx, imageInterval, func() { c.tellImages(c.CollectImages(ctx)) }) })
	every(ctx, deadInterval, func() { c.tell(ContainerGCFailed, c.CollectDead(ctx)) })
	return nil
}

func every(ctx context.Context, interval time.Duration, do func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		do()
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// notFreed says that there were not images enough to remove.
type notFreed struct{ error }

func (e notFreed) Unwrap() error { return e.error }

func (c *Collector) tellImages(err error) {
	var short notFreed
	if errors.As(err, &short) {
		c.tell(ImageGCFailed, nil)
		c.tell(FreeDiskSpaceFailed, err)
		return
	}
	c.tell(ImageGCFailed, err)
	if err == nil {
		c.tell(FreeDiskSpaceFailed, nil)
	}
}

func (c *Collector) tell(reason string, err error) {
	c.mu.Lock()
	if c.told[reason] == nil {
		c.told[reason] = &lasting.Failure{}
	}
	tell := false
	if err == nil {
		c.told[reason].Over()
	} else {
		tell = c.told[reason].Tell(err.Error())
	}
	c.mu.Unlock()
	if tell && !errors.Is(err, context.Canceled) {
		c.cfg.Failed(reason, err)
	}
}

// each does something with all, some at a time. None waits for more than one
// that hangs, and none is left out because another one failed.
func each[T any](ctx context.Context, list []T, do func(context.Context, T) error) (done []T, err error) {
	slots := make(chan struct{}, atATime)
	errs := make([]error, len(list))
	var all sync.WaitGroup
	for i, what := range list {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if errs[i] = ctx.Err(); errs[i] == nil {
				within, cancel := context.WithTimeout(ctx, callLimit)
				defer cancel()
				errs[i] = do(within, what)
			}
		})
	}
	all.Wait()
	for i, what := range list {
		if errs[i] == nil {
			done = append(done, what)
		}
	}
	return done, errors.Join(errs...)
}

// gone takes what is not there for what was removed.
func gone(err error) error {
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// measure asks the kernel, within a limit: the file system may hang.
func measure(ctx context.Context, path string) (Disk, error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	return hostpath.Look(ctx, path, func() (Disk, error) {
		var s unix.Statfs_t
		if err := unix.Statfs(path, &s); err != nil {
			return Disk{}, fmt.Errorf("ask for the space of %s: %w", path, err)
		}
		return Disk{s.Blocks * uint64(s.Bsize), s.Bavail * uint64(s.Bsize)}, nil
	})
}
