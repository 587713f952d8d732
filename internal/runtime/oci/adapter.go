package oci

import (
	"context"
	"errors"
	"fmt"
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

// running is a process that was started, with what the runtime knows of it.
func (h *Handler) running(p pod.RunningProcess, id string) pod.RunningProcess {
	if h.tool.adapter != nil {
		p.Task = h.tool.adapter.Task(h.tool.root, id)
	}
	return p
}

// Try lets the runtime of an adapted definition run a container on trial. It
// returns the ociVersion that it accepts, and what was measured.
func (d *Driver) Try(ctx context.Context, def runtime.Definition, f *features.Features) (string, pod.HandlerTrial, error) {
	return d.accepted(ctx, d.tool(def), candidates(f))
}

// Run runs a program that only prints something, with a bound on that.
func Run(ctx context.Context, argv ...string) ([]byte, error) { return runArgv(ctx, argv) }

// Reason is an error as a sentence of HandlerInfo.Reason.
func Reason(err error) string { return reason(err) }

// ReadFeatures asks an OCI runtime for its features; nil for one that has none.
func ReadFeatures(ctx context.Context, program string) *features.Features {
	return readFeatures(ctx, program)
}

// Abilities are those of features on this host. An adapted runtime has no
// checkpoints and no user namespaces.
func Abilities(f *features.Features) pod.HandlerFeatures {
	if f == nil {
		return pod.HandlerFeatures{}
	}
	return abilities.Runtime{}.Can(f, abilities.OfHost())
}

var errNotForwarded = fmt.Errorf("its runtime has no way into the network of a sandbox: %w", errdefs.ErrUnimplemented)
