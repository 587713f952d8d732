package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.run/api/config/v1alpha1"
	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime"
	"fairlead.run/internal/runtime/oci/cgroup"
	"fairlead.run/internal/runtime/oci/process"
)

// Keeper is the side of the OCI handlers that an audit looks at: processes,
// what the runtimes keep, cgroups of containers, FIFOs and trials.
type Keeper struct {
	*Driver
	// Handlers is how a handler is described. Nil where none is.
	Handlers func(name string) v1alpha1.Handler
}

var _ pod.Keeper = Keeper{}

// Held lists what the OCI handlers and the monitor have of containers.
func (k Keeper) Held(ctx context.Context, records []*pod.Record) ([]pod.Held, error) {
	out := []pod.Held{}
	for _, list := range []func(context.Context, []*pod.Record) ([]pod.Held, error){
		k.heldProcesses, k.heldStates, k.heldOfBundles, k.heldTrials,
	} {
		held, err := list(ctx, records)
		if err != nil {
			return nil, err
		}
		out = append(out, held...)
	}
	return out, nil
}

// heldProcesses asks the monitor. An exec that runs is its container's, and ends
// with it; one that has ended is forgotten by who asked for it, unless that was
// an earlier run of the daemon.
func (k Keeper) heldProcesses(ctx context.Context, _ []*pod.Record) (out []pod.Held, err error) {
	list, err := k.cfg.Monitor.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		switch {
		case k.trials.has(p.ID):
		case p.Kind != monitorv1.KindExec:
			out = append(out, pod.Held{Kind: pod.KindProcess, Name: p.ID, Owner: p.ID})
		case p.State == monitorv1.Exited && !IsOwnExec(p.ID):
			out = append(out, pod.Held{Kind: pod.KindProcess, Name: p.ID})
		}
	}
	return out, nil
}

// rootOf is where the runtime of a handler keeps its state.
func (k Keeper) rootOf(handler string) string {
	return k.root(k.definition(handler))
}

// heldStates lists what runtimes keep. In a folder that the administrator chose
// there may be containers of others, so only those of records count there.
func (k Keeper) heldStates(_ context.Context, records []*pod.Record) (out []pod.Held, err error) {
	add := func(path string) {
		owner, _, _ := strings.Cut(filepath.Base(path), stateOfSandbox)
		out = append(out, pod.Held{Kind: pod.KindState, Name: path, Owner: owner})
	}
	base := filepath.Join(k.cfg.StateDir, "runtimes")
	handlers, err := readDir(base)
	if err != nil {
		return nil, err
	}
	for _, h := range handlers {
		states, err := readDir(filepath.Join(base, h.Name()))
		if err != nil {
			return nil, err
		}
		for _, s := range states {
			id, _, file := strings.Cut(s.Name(), stateOfSandbox)
			if (s.IsDir() || file && filepath.Ext(s.Name()) == stateExt) && !k.trials.has(id) {
				add(filepath.Join(base, h.Name(), s.Name()))
			}
		}
	}
	for _, r := range records {
		for _, h := range k.wantStates(r) {
			if filepath.Dir(filepath.Dir(h.Name)) == base {
				continue
			}
			if _, err := os.Lstat(h.Name); err == nil {
				add(h.Name)
			}
		}
	}
	return out, nil
}

// readDir is os.ReadDir, but a folder that is not there has nothing in it.
func readDir(dir string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	return entries, err
}

// heldOfBundles lists the FIFOs in bundles, and the cgroups that they name. A
// cgroup that is there in part only is none for a container that runs.
func (k Keeper) heldOfBundles(_ context.Context, records []*pod.Record) (out []pod.Held, err error) {
	runs := map[string]bool{}
	for _, r := range records {
		for _, c := range r.Containers {
			runs[string(c.ID)] = c.State == pod.Running
		}
	}
	base := filepath.Join(k.cfg.StateDir, "containers")
	bundles, err := readDir(base)
	if err != nil {
		return nil, err
	}
	for _, b := range bundles {
		id, dir := b.Name(), filepath.Join(base, b.Name())
		fifos, err := readDir(filepath.Join(dir, ioFolder))
		if err != nil {
			return nil, err
		}
		for _, f := range fifos {
			out = append(out, pod.Held{Kind: pod.KindFIFO, Name: filepath.Join(dir, ioFolder, f.Name()), Owner: id})
		}
		path, g := k.cgroupOf(id)
		if path != "" && g.Exists() && !(runs[id] && len(k.lacking(g)) > 0) {
			out = append(out, pod.Held{Kind: pod.KindCgroup, Name: path, Owner: id})
		}
	}
	return out, nil
}

// cgroupOf is the cgroup that a bundle names. A bundle that tells of none is in
// order here; others look at bundles.
func (k Keeper) cgroupOf(id string) (path string, g *cgroup.Group) {
	h := k.handler("")
	path, err := h.cgroup(h.folder(id))
	if err != nil || path == "" {
		return "", nil
	}
	if g, err = cgroup.New(cgroupRoot, path); err != nil {
		return "", nil
	}
	return path, g
}

// lacking are the hierarchies in which the cgroup is gone. What systemd makes,
// it also removes from those where it is of no use.
func (k Keeper) lacking(g *cgroup.Group) []string {
	if k.cfg.Systemd {
		return nil
	}
	return g.Lacking()
}

// heldTrials lists the folders of trials that nobody is at any more.
func (k Keeper) heldTrials(context.Context, []*pod.Record) (out []pod.Held, err error) {
	base := filepath.Join(k.cfg.StateDir, trialsFolder)
	entries, err := readDir(base)
	for _, e := range entries {
		if !k.trials.has(e.Name()) {
			out = append(out, pod.Held{Kind: pod.KindTrial, Name: filepath.Join(base, e.Name())})
		}
	}
	return out, err
}

// Wants is what containers that run have to have. One whose process has just
// ended is none: its parts may be going, and its record is about to say so.
func (k Keeper) Wants(r *pod.Record) []pod.Held {
	var out []pod.Held
	if r.State == pod.Running && lives(r.Sandbox.Pause) {
		out = append(out, pod.Held{Kind: pod.KindProcess, Name: string(r.ID), Owner: string(r.ID)})
	}
	for _, c := range r.Containers {
		if c.State != pod.Running || !lives(c.Process) {
			continue
		}
		id := string(c.ID)
		want := func(kind pod.Kind, name string) { out = append(out, pod.Held{Kind: kind, Name: name, Owner: id}) }
		want(pod.KindProcess, id)
		if path, g := k.cgroupOf(id); path != "" {
			want(pod.KindCgroup, path)
			if lacking := k.lacking(g); len(lacking) > 0 {
				out[len(out)-1].Fault = "it is not in " + strings.Join(lacking, ", ")
			}
		}
		for _, name := range fifos(c) {
			want(pod.KindFIFO, filepath.Join(k.cfg.StateDir, "containers", id, ioFolder, name))
		}
	}
	return append(out, k.wantStates(r)...)
}

// lives says whether a process is known and seen to be alive.
func lives(p *pod.RunningProcess) bool {
	if p == nil {
		return false
	}
	yes, err := process.Alive(p)
	return err == nil && yes
}

// fifos are those that the monitor made for a container.
func fifos(c *pod.Container) []string {
	switch {
	case c.Config.Process.TTY:
		return nil
	case c.Config.Process.Stdin:
		return []string{"stdin", "stdout", "stderr"}
	}
	return []string{"stdout", "stderr"}
}

func (k Keeper) wantStates(r *pod.Record) (out []pod.Held) {
	for _, c := range r.Containers {
		if c.State == pod.Running && lives(c.Process) {
			out = append(out, pod.Held{Kind: pod.KindState, Name: stateOf(k.rootOf(r.Handler), string(c.ID)), Owner: string(c.ID)})
		}
	}
	return out
}

func (k Keeper) definition(name string) runtime.Definition {
	def := runtime.Definition{Name: name, Search: runtime.SearchPath()}
	if k.Handlers != nil {
		def.Handler = k.Handlers(name)
	}
	return def
}

// handler works on containers of which only the id is known.
func (k Keeper) handler(name string) *Handler {
	return k.Open(k.definition(name), func() pod.HandlerInfo { return pod.HandlerInfo{Name: name} })
}

// Drop ends and removes one thing.
func (k Keeper) Drop(ctx context.Context, h pod.Held) error {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	switch h.Kind {
	case pod.KindProcess:
		return k.handler("").forget(ctx, h.Name)
	case pod.KindState:
		return k.dropState(ctx, h)
	case pod.KindCgroup:
		return k.dropCgroup(ctx, h)
	case pod.KindFIFO:
		return ignoreMissing(os.Remove(h.Name))
	case pod.KindTrial:
		return k.dropTrial(ctx, h.Name)
	}
	return fmt.Errorf("remove %s %s: OCI handlers have none: %w", h.Kind, h.Name, errdefs.ErrInvalidArgument)
}

// dropState lets the runtime delete a container. What it does not know, or
// what no program is left for, goes as files.
func (k Keeper) dropState(ctx context.Context, h pod.Held) error {
	handler := k.handler(filepath.Base(filepath.Dir(h.Name)))
	err := handler.Delete(ctx, h.Owner)
	if err != nil {
		if _, missing := handler.def.Program(); missing == nil {
			return err
		}
	}
	if err := unmountLeft(filepath.Split(h.Name)); err != nil {
		return err
	}
	return os.RemoveAll(h.Name)
}

// SweepTrials ends all trials that the death of a daemon has cut off, also
// those of handlers that are not there any more, which nobody will try again.
func (k Keeper) SweepTrials(ctx context.Context) error {
	held, err := k.heldTrials(ctx, nil)
	for _, h := range held {
		err = errors.Join(err, k.Drop(ctx, h))
	}
	return err
}

// dropTrial ends a trial that was cut off. What it has to kill, its own bundle
// says; one that names anything but a trial's cgroup is only deleted.
func (k Keeper) dropTrial(ctx context.Context, bundle string) error {
	name := filepath.Base(bundle)
	at := strings.LastIndexByte(name, '-')
	h, id := k.handler(name[:max(at, 0)]), trialPrefix+name[at+1:]
	end := k.trials.begin(id, name)
	if end == nil {
		return nil // another is at it
	}
	defer end()
	path, err := h.cgroup(bundle)
	if at < 0 || err != nil || !strings.Contains(filepath.Base(path), id) {
		return os.RemoveAll(bundle)
	}
	return k.endTrial(ctx, h.tool, bundle, id)
}

func (k Keeper) dropCgroup(ctx context.Context, h pod.Held) error {
	g, err := k.handler("").group(h.Owner)
	if err != nil || g == nil {
		return err
	}
	if err := g.KillRest(ctx); err != nil {
		return err
	}
	return g.Remove(ctx)
}

// Restore cannot put back what runtimes and the monitor have lost: they got it
// at the container's start.
func (k Keeper) Restore(_ context.Context, _ *pod.Record, h pod.Held) error {
	return fmt.Errorf("put back %s %s: remove the container, and its owner makes another: %w", h.Kind, h.Name, errdefs.ErrPrecondition)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
