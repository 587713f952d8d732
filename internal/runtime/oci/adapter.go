package oci

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go/features"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime"
	"fairlead.run/internal/runtime/oci/abilities"
	"fairlead.run/internal/runtime/oci/process"
)

// Adapter is for a kind of runtime that is none of OCI's, with a program of ours
// that has the command line of one. It leaves a stand-in for each process, and
// keeps a folder of the container's name in the root.
type Adapter interface {
	// Command is the command line before the flags that all runtimes have. program
	// is that of the handler.
	Command(program string) []string
	// Signal sends a signal to a container, or to a process that was executed in it.
	// One that is not there is errdefs.ErrNotFound, and a runtime that gives no
	// answer ErrDeadline or ErrUnavailable.
	Signal(ctx context.Context, root string, to Addressee, sig unix.Signal) error
	// Task is the container's own process on the host, or 0.
	Task(root, id string) int
	// Usage is what the kernel of a sandbox counts for a container in it.
	Usage(ctx context.Context, root, id string) (pod.InsideUsage, error)
}

// Addressee is who gets a signal: a container's first process, all of its
// processes, or one that was executed in it.
type Addressee struct {
	ID   string
	Exec string // empty for the container itself
	All  bool
}

// signalLimit bounds a signal that a runtime passes on, which starts a program.
const signalLimit = 3 * time.Second

// killAdapted sends a signal by the runtime. With one that gives no answer, what
// there is on the host can be ended; Delete then ends the rest.
func (h *Handler) killAdapted(ctx context.Context, c *pod.Container, sig unix.Signal, all bool) error {
	bounded, cancel := context.WithTimeout(ctx, signalLimit)
	defer cancel()
	err := h.tool.adapter.Signal(bounded, h.tool.root, Addressee{ID: string(c.ID), All: all}, sig)
	if err == nil || errors.Is(err, errdefs.ErrNotFound) {
		return nil
	}
	if c.Process != nil {
		if lives, _ := process.Alive(c.Process); !lives {
			return nil // each runtime says in its own words that it has ended
		}
	}
	if sig != sigKill {
		return err
	}
	if err := h.killAll(ctx, c, sig); err != nil {
		return err
	}
	if c.Process == nil {
		return err
	}
	return process.Signal(c.Process, sig) // the stand-in
}

// killExecuted kills a process in a container by the runtime. What it has started
// the monitor finds, as far as that is on the host.
func (h *Handler) killExecuted(ctx context.Context, container, exec string) {
	ctx, cancel := context.WithTimeout(ctx, signalLimit)
	defer cancel()
	// One that has ended is an error; the monitor kills the stand-in in any case.
	_ = h.tool.adapter.Signal(ctx, h.tool.root, Addressee{ID: container, Exec: exec}, sigKill)
}

// usageAdapted asks for all containers at the same time. One that has just ended,
// or of which nothing is known, is left out.
func (h *Handler) usageAdapted(ctx context.Context, ids []string) (map[pod.ContainerID]pod.InsideUsage, error) {
	out := make(map[pod.ContainerID]pod.InsideUsage, len(ids))
	var mu sync.Mutex
	var failed error
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			u, err := h.tool.adapter.Usage(ctx, h.tool.root, id)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				out[pod.ContainerID(id)] = u
			} else if !errors.Is(err, errdefs.ErrNotFound) {
				failed = err
			}
		})
	}
	all.Wait()
	if len(out) == 0 {
		return nil, failed
	}
	return out, nil
}

// running is a process that was started, with what the runtime knows of it.
func (h *Handler) running(p pod.RunningProcess, id string) pod.RunningProcess {
	if h.tool.adapter != nil {
		p.Task = h.tool.adapter.Task(h.tool.root, id)
	}
	return p
}

// Try lets the runtime of an adapted definition run a container on trial, and puts
// into info the ociVersion that it accepts, what was measured, and what it can do.
// f is what it says of itself, or nil.
func (d *Driver) Try(ctx context.Context, def runtime.Definition, f *features.Features, info *pod.HandlerInfo) error {
	t := d.tool(def)
	version, all, err := d.accepted(ctx, t, candidates(f))
	if err != nil {
		return err
	}
	info.OCI, info.Trial = version, all.HandlerTrial
	if f != nil {
		info.Features = abilities.Runtime{}.Can(f, abilities.OfHost())
	}
	d.features(ctx, t, all, info)
	d.userNamespaces(ctx, t, info)
	return nil
}

// Run runs a program that only prints something, with a bound on that.
func Run(ctx context.Context, argv ...string) ([]byte, error) { return runFrom(ctx, asItIs, argv) }

// Reason is an error as a sentence of HandlerInfo.Reason.
func Reason(err error) string { return reason(err) }

// Late tells whether a trial failed because its time was over.
func Late(ctx context.Context, err error) bool { return late(ctx, err) }

// ReadFeatures asks an OCI runtime for its features; nil for one that has none.
func ReadFeatures(ctx context.Context, program string) *features.Features {
	return readFeatures(ctx, asItIs, program)
}

var errNotForwarded = fmt.Errorf("its runtime has no way into the network of a sandbox: %w", errdefs.ErrUnimplemented)
