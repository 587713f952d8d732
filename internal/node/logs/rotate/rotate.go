// Package rotate keeps the logs of running containers small: when one has
// reached its size it is renamed, and the runtime opens a new one. What was
// renamed is compressed at the next rotation, and removed when there are too
// many. The newest stays as it is, because the runtime may still write to it,
// and because readers have it open.
//
// It reads no logs; that is package logs, which also has the names.
package rotate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/lasting"
)

// What a kubelet takes where nothing is said.
const (
	DefaultSize     = 10 << 20
	DefaultFiles    = 5
	DefaultInterval = 10 * time.Second
	DefaultWorkers  = 1
)

// Limits of single steps.
const (
	reopenLimit = time.Minute
	lookLimit   = 5 * time.Second
	restOfHung  = time.Minute // before a path that hangs is looked at again
	slotLimit   = time.Minute // after which what hangs keeps no worker from others
)

// FailedRotation is the reason of events about what Config.Failed is told.
const FailedRotation = "FailedLogRotation"

// Config is what a Rotator works with. Only Runtime is required.
type Config struct {
	Runtime  runtimeapi.RuntimeServiceClient
	Size     int64         // in bytes, at which a log is rotated; 0 is DefaultSize, less is never
	Files    int           // for each container, the current one included; at least 2, 0 is DefaultFiles
	Interval time.Duration // between two looks; 0 is DefaultInterval
	Workers  int           // containers at a time; 0 is DefaultWorkers
	// List has the containers that run. Nil asks the runtime.
	List func(context.Context) ([]Container, error)
	// Failed is told of each failure, and again now and then while it lasts; beside Log.
	Failed func(error)
	Log    *slog.Logger
}

// Container is one that runs.
type Container struct {
	ID   string
	Path string // of its log; empty for none
}

// Rotator rotates logs.
type Rotator struct {
	cfg   Config
	paths map[string]string // by container, of List from the runtime

	mu   sync.Mutex
	busy map[string]bool             // containers that a worker is at
	told map[string]*lasting.Failure // of containers
	hung map[string]time.Time        // when to look at a path again
}

// New makes a Rotator.
func New(c Config) (*Rotator, error) {
	if c.Files == 0 {
		c.Files = DefaultFiles
	}
	if c.Files < 2 {
		return nil, fmt.Errorf("rotate logs: %d files for each container are too few; 2 is the least, one that is written to and one before it", c.Files)
	}
	if c.Size == 0 {
		c.Size = DefaultSize
	}
	if c.Interval <= 0 {
		c.Interval = DefaultInterval
	}
	if c.Workers <= 0 {
		c.Workers = DefaultWorkers
	}
	if c.Failed == nil {
		c.Failed = func(error) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Rotator{cfg: c, paths: map[string]string{}, busy: map[string]bool{}, told: map[string]*lasting.Failure{}, hung: map[string]time.Time{}}, nil
}

// Run rotates until ctx ends. What is being compressed then is left as it was.
func (r *Rotator) Run(ctx context.Context) error {
	if r.cfg.Size < 0 {
		<-ctx.Done()
		return nil
	}
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan struct{}, r.cfg.Workers)
	tick := time.NewTicker(r.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		due, err := r.due(ctx)
		if ctx.Err() != nil {
			return nil
		}
		r.tell(Container{}, err)
		for _, c := range due {
			all.Go(func() {
				r.inTurn(ctx, slots, c)
				r.mu.Lock()
				defer r.mu.Unlock()
				delete(r.busy, c.ID)
			})
		}
	}
}

func (r *Rotator) inTurn(ctx context.Context, slots chan struct{}, c Container) {
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	back := sync.OnceFunc(func() { <-slots })
	defer back()
	defer time.AfterFunc(slotLimit, back).Stop()
	r.tell(c, r.rotate(ctx, c))
}

// tell tells of a failure, and again now and then while it lasts.
func (r *Rotator) tell(c Container, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil || errors.Is(err, context.Canceled) {
		delete(r.told, c.ID)
		return
	}
	if r.told[c.ID] == nil {
		r.told[c.ID] = &lasting.Failure{}
	}
	if !r.told[c.ID].Tell(err.Error()) {
		return
	}
	if c.ID == "" {
		r.cfg.Log.Warn("Logs are not rotated.", "error", err)
		r.cfg.Failed(fmt.Errorf("logs of containers are not rotated: %w", err))
		return
	}
	r.cfg.Log.Warn("A log is not rotated.", "container", c.ID, "path", c.Path, "error", err)
	r.cfg.Failed(fmt.Errorf("the log %s is not rotated and grows: %w", c.Path, err))
}

// due are the containers whose logs have reached their size or are missing, and
// that nobody is at. They are marked.
func (r *Rotator) due(ctx context.Context) ([]Container, error) {
	list := r.cfg.List
	if list == nil {
		list = r.list
	}
	all, err := list(ctx)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	running := map[string]bool{"": true}
	var look []Container
	for _, c := range all {
		running[c.ID] = true
		if c.Path != "" && !r.busy[c.ID] && !time.Now().Before(r.hung[c.Path]) {
			look = append(look, c)
		}
	}
	for id := range r.told {
		if !running[id] {
			delete(r.told, id)
		}
	}
	r.mu.Unlock()
	due, err := r.full(ctx, look)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range due {
		r.busy[c.ID] = true
	}
	return due, err
}

// full finds out which logs need something. All are looked at by one thread;
// only if that hangs, each by its own.
func (r *Rotator) full(ctx context.Context, list []Container) ([]Container, error) {
	if len(list) == 0 {
		return nil, nil
	}
	within, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	due, err := hostpath.Look(within, "the logs of containers", func() ([]Container, error) {
		var out []Container
		for _, c := range list {
			if r.needs(c.Path) {
				out = append(out, c)
			}
		}
		return out, nil
	})
	if err == nil || ctx.Err() != nil {
		return due, err
	}
	var each sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, c := range list {
		each.Go(func() {
			within, cancel := context.WithTimeout(ctx, lookLimit)
			defer cancel()
			need, err := hostpath.Look(within, c.Path, func() (bool, error) { return r.needs(c.Path), nil })
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				r.mu.Lock()
				r.hung[c.Path] = time.Now().Add(restOfHung)
				r.mu.Unlock()
			} else if need {
				due = append(due, c)
			}
		})
	}
	each.Wait()
	return due, errors.Join(errs...)
}

// needs says whether a log has reached its size, or is missing.
func (r *Rotator) needs(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return info.Mode().IsRegular() && info.Size() >= r.cfg.Size
}

// list asks the runtime for containers that run, and once for each where its
// log is.
func (r *Rotator) list(ctx context.Context) ([]Container, error) {
	within, cancel := context.WithTimeout(ctx, reopenLimit)
	defer cancel()
	running := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	got, err := r.cfg.Runtime.ListContainers(within, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{State: running}})
	if err != nil {
		return nil, fmt.Errorf("list containers that run: %w", err)
	}
	var out []Container
	paths := map[string]string{}
	for _, c := range got.GetContainers() {
		path, known := r.paths[c.GetId()]
		if !known {
			s, err := r.cfg.Runtime.ContainerStatus(within, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
			if err != nil {
				continue // it has ended, or the next look asks again
			}
			path = s.GetStatus().GetLogPath()
		}
		paths[c.GetId()] = path
		out = append(out, Container{c.GetId(), path})
	}
	r.paths = paths
	return out, nil
}
