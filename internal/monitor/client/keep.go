package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/wire"
)

// Keep holds on to what would be gone if both of the monitor's processes died:
// the FIFOs and terminals of containers with what nobody has read yet, and, by
// pidfds, when and how the containers ended. A new monitor finds the FIFOs by
// name and is given the terminals.
//
// It reads nothing, and costs three descriptors for each container from its
// start until its output is at its end or it is forgotten.
type Keep struct {
	log   *slog.Logger
	watch *linux.Watch
	most  int // descriptors

	mu   sync.Mutex
	held map[string]*kept
	open int  // descriptors of all
	full bool // most was reached, and that was said
}

// kept is what is held of one container.
type kept struct {
	process  int   // -1 when there is none
	terminal int   // -1 when there is none
	fifos    []int // empty with a terminal
	since    time.Time
	ended    time.Time
	known    bool // code and signal are
	code     int
	signal   int
}

// NewKeep makes one, for Options.Keep. A nil log means slog.Default().
func NewKeep(log *slog.Logger) (*Keep, error) {
	if log == nil {
		log = slog.Default()
	}
	watch, err := linux.NewWatch()
	if err != nil {
		return nil, fmt.Errorf("watch the ends of containers: %w", err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil, errors.Join(fmt.Errorf("ask for the limit of descriptors: %w", err), watch.Close())
	}
	// Half of them: without the others, nothing can be started at all.
	most := int(min(limit.Cur/2, 1<<30))
	return &Keep{log: log, watch: watch, most: most, held: map[string]*kept{}}, nil
}

// Run notes when containers end, until ctx does.
func (k *Keep) Run(ctx context.Context) error {
	k.watch.Run(ctx, func(id string, at time.Time) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if h := k.held[id]; h != nil && h.ended.IsZero() && !at.Before(h.since) {
			h.ended = at
		}
	})
	return ctx.Err()
}

// Close lets go of everything.
func (k *Keep) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id := range k.held {
		k.dropLocked(id)
	}
	return k.watch.Close()
}

// add takes over the descriptors of a container.
func (k *Keep) add(id string, what []monitorv1.Kept, fds []int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dropLocked(id)
	if len(what) != len(fds) || len(fds) == 0 || k.open+len(fds) > k.most {
		wire.CloseAll(fds)
		if k.open+len(fds) > k.most && !k.full {
			k.full = true
			k.log.Warn("output and ends of some containers are not kept while no monitor runs: half of all descriptors are in use; raise the limit (LimitNOFILE)", "limit", 2*k.most)
		}
		return
	}
	h := &kept{process: -1, terminal: -1, since: time.Now()}
	for i, fd := range fds {
		switch what[i] {
		case monitorv1.KeptProcess:
			h.process = fd
		case monitorv1.KeptTerminal:
			h.terminal = fd
		default:
			h.fifos = append(h.fifos, fd)
		}
	}
	k.held[id] = h
	k.open += len(fds)
	if h.process < 0 {
		return
	}
	if err := k.watch.Add(id, h.process); err != nil {
		k.log.Warn("the end of a container is not watched", "id", id, "error", err)
	}
}

func (k *Keep) drop(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dropLocked(id)
}

// dropLocked closes what is held of a container. The caller holds mu.
func (k *Keep) dropLocked(id string) {
	h := k.held[id]
	if h == nil {
		return
	}
	delete(k.held, id)
	k.watch.Remove(id)
	k.closeAll(append(h.fifos, h.process, h.terminal)...)
}

// closeAll closes descriptors that are there. The caller holds mu.
func (k *Keep) closeAll(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
			k.open--
		}
	}
}

// holds says whether anything is held of a container.
func (k *Keep) holds(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held[id] != nil
}

// ids are those of whom anything is held.
func (k *Keep) ids() map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	ids := make(map[string]bool, len(k.held))
	for id := range k.held {
		ids[id] = true
	}
	return ids
}

// terminal returns a copy of the container's terminal, which is the caller's, or
// -1.
func (k *Keep) terminal(id string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.held[id]
	if h == nil || h.terminal < 0 {
		return -1
	}
	fd, err := unix.FcntlInt(uintptr(h.terminal), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

// complete adds to an exit that the monitor tells what was seen from here: when
// it was, if that is earlier, and how, if no monitor was there. A nil Keep has
// seen nothing.
func (k *Keep) complete(e monitorv1.Exit) monitorv1.Exit {
	if k == nil {
		return e
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.held[e.ID]
	if h == nil {
		return e
	}
	if h.process >= 0 && e.Lost {
		h.code, h.signal, h.known = linux.EndOfPidfd(h.process)
	}
	if !h.ended.IsZero() && h.ended.Before(e.FinishedAt) {
		e.FinishedAt, e.Found = h.ended, false
	}
	if e.Lost && h.known {
		e.Code, e.Signal, e.Lost = h.code, h.signal, false
	}
	return e
}

// settle is called when the exit was told: only output that is left, or may
// still come, is held from then on.
func (k *Keep) settle(id string) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.held[id]
	if h == nil {
		return
	}
	k.watch.Remove(id)
	k.closeAll(h.process)
	h.process = -1
	for i, fd := range h.fifos {
		if fd >= 0 && linux.HungUp(fd) && linux.Buffered(fd) == 0 {
			k.closeAll(fd)
			h.fifos[i] = -1
		}
	}
}

// resume is called on a new connection, which may be to a new monitor: it gives
// back terminals, asks for what is not held yet, and lets go of who is forgotten.
// What fails is said in the log; exits are told all the same.
func (c *Client) resume(ctx context.Context, k *Keep) error {
	gone := k.ids()
	list, err := c.List(ctx)
	if err != nil {
		return err
	}
	for _, p := range list {
		delete(gone, p.ID)
		if p.Kind != monitorv1.KindContainer {
			continue
		}
		err := c.resumeOne(ctx, k, p)
		if err != nil && ctx.Err() == nil && !errors.Is(err, errdefs.ErrUnimplemented) && !errors.Is(err, errdefs.ErrNotFound) {
			k.log.Warn("output of a container cannot be kept", "id", p.ID, "error", err)
		}
	}
	for id := range gone {
		k.drop(id)
	}
	return nil
}

func (c *Client) resumeOne(ctx context.Context, k *Keep, p monitorv1.Process) error {
	if fd := k.terminal(p.ID); fd >= 0 {
		defer func() { _ = unix.Close(fd) }()
		if !p.NoTerminal {
			return nil
		}
		return c.tell(ctx, request{op: monitorv1.OpGive, body: monitorv1.IDRequest{ID: p.ID}, fds: []int{fd}, once: true})
	}
	if p.State != monitorv1.Running || k.holds(p.ID) {
		return nil
	}
	var started monitorv1.Started
	fds, err := c.ask(ctx, request{op: monitorv1.OpKeep, body: monitorv1.IDRequest{ID: p.ID}}, &started)
	if err == nil {
		k.add(p.ID, started.Kept, fds)
	}
	return err
}
