package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/runtime/oci/cgroup"
	"fairlead.run/internal/runtime/oci/process"
	"fairlead.run/internal/runtime/oci/trial"
	"fairlead.run/internal/userns"
)

// trialEnd bounds the removal of what a trial has left. A runtime that works takes
// some ms; on a machine that has just booted and is busy, seconds.
const trialEnd = 10 * time.Second

// Trials are trials/HANDLER-UNIQUE in the state directory, and their containers
// trial-UNIQUE.
const (
	trialsFolder = "trials"
	trialPrefix  = "trial-"
)

// trials are the names that trials under way have.
type trials struct {
	mu    sync.Mutex
	names map[string]bool
}

// begin notes the names of a trial until end is called. It returns nil if
// somebody else is at it.
func (t *trials) begin(names ...string) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.ContainsFunc(names, func(n string) bool { return t.names[n] }) {
		return nil
	}
	if t.names == nil {
		t.names = map[string]bool{}
	}
	for _, n := range names {
		t.names[n] = true
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, n := range names {
			delete(t.names, n)
		}
	}
}

func (t *trials) has(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.names[name]
}

// try is a trial, and a second one if the first failed: a failure takes the
// handler from all pods for a while, and not each tells of the handler. On
// cgroup v1 systemd sometimes removes the cgroups of a scope that has just begun
// while crun makes its own in them.
func (d *Driver) try(ctx context.Context, t tool, ociVersion string, in *userns.Holder) error {
	_, err := d.tryOnce(ctx, t, ociVersion, in)
	if err == nil || ctx.Err() != nil || badOCI.MatchString(err.Error()) {
		return err
	}
	d.cfg.Log.Info("trial of a handler failed, and is repeated", "handler", t.def.Name, "error", err)
	_, err = d.tryOnce(ctx, t, ociVersion, in)
	return err
}

// tryAll is a trial of all features in one container. If that fails, the handler is
// tried without any, and then with each: one of them may be what it cannot do.
func (d *Driver) tryAll(ctx context.Context, t tool, ociVersion string) (*seen, error) {
	found, err := d.tryOnce(ctx, t, ociVersion, nil, inside...)
	if err == nil || ctx.Err() != nil || badOCI.MatchString(err.Error()) {
		return found, err
	}
	d.cfg.Log.Info("trial of a handler failed, and is repeated feature by feature", "handler", t.def.Name, "error", err)
	if found, err = d.tryOnce(ctx, t, ociVersion, nil); err != nil {
		return found, err
	}
	for _, name := range inside {
		alone, err := d.tryOnce(ctx, t, ociVersion, nil, name)
		if err == nil {
			err = alone.lacks[name]
		}
		found.note(name, err)
	}
	return found, nil
}

// tryOnce lets the runtime run a container of ours to its end: it makes the
// cgroup, the namespaces, the mounts and the root file system, and starts the
// program in it, which says a word that nobody can guess. No image is needed.
// wanted are what the program looks for.
func (d *Driver) tryOnce(ctx context.Context, t tool, ociVersion string, in *userns.Holder, wanted ...string) (found *seen, err error) {
	found = &seen{runtime: t.runtime, word: randomHex(16), lacks: map[string]error{}}
	for _, dir := range []string{t.root, filepath.Join(d.cfg.StateDir, trialsFolder)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return found, fmt.Errorf("prepare a trial: %w", err)
		}
	}
	d.sweepTrials(ctx, t)
	unique := randomHex(8)
	id, bundle := trialPrefix+unique, filepath.Join(d.cfg.StateDir, trialsFolder, t.def.Name+"-"+unique)
	defer d.trials.begin(id, filepath.Base(bundle))()
	if err := os.Mkdir(bundle, 0o700); err != nil {
		return found, fmt.Errorf("prepare a trial: %w", err)
	}
	s := trial.Spec(ociVersion, id, d.cfg.StandIn, found.word)
	if d.cfg.Systemd {
		trial.BySystemd(s)
	}
	if t.adapter != nil {
		trial.Sandbox(s, id)
	}
	if in != nil {
		trial.Join(s, in)
	}
	if sandboxes(t.runtime) {
		trial.Account(s)
	}
	for _, name := range wanted {
		if err := trial.Want(s, name); err != nil {
			found.lacks[name] = err
			continue
		}
		found.wanted = append(found.wanted, name)
	}
	defer func() { err = errors.Join(err, d.endTrial(ctx, t, bundle, id)) }()
	if err := trial.Write(bundle, s); err != nil {
		return found, fmt.Errorf("prepare a trial: %w", err)
	}
	return found, d.hear(ctx, t, bundle, found)
}

// hear runs the bundle of a trial until its program has said the word, measures
// it, and lets it end.
func (d *Driver) hear(ctx context.Context, t tool, bundle string, found *seen) error {
	in, hold, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("prepare a trial: %w", err)
	}
	id := strings.Replace(filepath.Base(bundle), t.def.Name+"-", trialPrefix, 1)
	defer func() { _, _ = in.Close(), hold.Close() }()
	begin := time.Now()
	said := &answer{word: found.word, kept: tail{max: errOutput}}
	said.heard = func() {
		found.Start = time.Since(begin)
		found.Overhead = d.overhead(t, bundle)
		found.take(string(said.kept.Bytes()))
		found.lookFrom(ctx, d, t, bundle, id)
		_ = hold.Close()
	}
	err = t.talk(ctx, in, said, "run", "--bundle", bundle, id)
	var failed *toolError
	switch {
	case err == nil && said.heard != nil:
		return errors.New("it says that it has run a container, whose program never ran")
	case err == nil:
		return nil
	case errors.As(err, &failed):
		return fmt.Errorf("a container on trial fails: %w", explain(failed.msg, nil, nil))
	}
	return fmt.Errorf("a container on trial fails: %w", err)
}

// answer is the output of a trial. heard is called once, when the word is in it.
type answer struct {
	word  string
	kept  tail
	heard func()
}

// Write implements io.Writer.
func (a *answer) Write(p []byte) (int, error) {
	n, err := a.kept.Write(p)
	if a.heard != nil && bytes.Contains(a.kept.Bytes(), []byte(a.word)) {
		a.heard()
		a.heard = nil
	}
	return n, err
}

// overhead is the memory of the processes that a runtime keeps beside the
// container on trial, in bytes: those in its cgroup that are not the program.
func (d *Driver) overhead(t tool, bundle string) int64 {
	h := &Handler{cfg: d.cfg, def: t.def, tool: t}
	path, err := h.cgroup(bundle)
	if err != nil {
		return 0
	}
	g, err := cgroup.New(cgroupRoot, path)
	if err != nil {
		return 0
	}
	pids, err := g.PIDs()
	if err != nil {
		return 0
	}
	ours, err := os.Stat(d.cfg.StandIn)
	if err != nil {
		return 0
	}
	var sum int64
	for _, pid := range pids {
		if exe, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && !os.SameFile(exe, ours) {
			sum += process.Memory(pid)
		}
	}
	return sum
}

// sweepTrials ends the trials of a handler that the death of a daemon cut off.
func (d *Driver) sweepTrials(ctx context.Context, t tool) {
	base := filepath.Join(d.cfg.StateDir, trialsFolder)
	bundles, err := readDir(base)
	for _, b := range bundles {
		unique, ok := strings.CutPrefix(b.Name(), t.def.Name+"-")
		if !ok || strings.Contains(unique, "-") {
			continue // of another handler
		}
		if end := d.trials.begin(trialPrefix+unique, b.Name()); end != nil {
			err = errors.Join(err, d.endTrial(ctx, t, filepath.Join(base, b.Name()), trialPrefix+unique))
			end()
		}
	}
	if err != nil {
		d.cfg.Log.Warn("what a trial of an earlier daemon has left cannot be removed", "handler", t.def.Name, "error", err)
	}
}

// endTrial removes what a trial leaves: nothing where all went well.
func (d *Driver) endTrial(ctx context.Context, t tool, bundle, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), trialEnd)
	defer cancel()
	err := d.endContainer(ctx, t, bundle, id)
	err = errors.Join(err, os.RemoveAll(bundle))
	if err != nil {
		return fmt.Errorf("clean up after the trial: %w", err)
	}
	return nil
}

// endContainer ends the container of a trial. One without a bundle that can be
// read was cut off before anything ran.
func (d *Driver) endContainer(ctx context.Context, t tool, bundle, id string) error {
	h := &Handler{cfg: d.cfg, def: t.def, tool: t}
	path, err := h.cgroup(bundle)
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*brokenBundle)) {
		return nil
	}
	if err != nil {
		return err
	}
	g, err := cgroup.New(cgroupRoot, path)
	if err != nil {
		return err
	}
	if !d.cfg.Systemd {
		defer removeParents(g)
	}
	return errors.Join(g.KillRest(ctx), h.deleteState(ctx, id, false), g.Remove(ctx), h.forgetTrial(ctx, bundle, id))
}

// forgetTrial has the monitor forget a trial that went through it. One that did
// has FIFOs.
func (h *Handler) forgetTrial(ctx context.Context, bundle, id string) error {
	if _, err := os.Lstat(filepath.Join(bundle, ioFolder)); err != nil {
		return ignoreMissing(err)
	}
	_, err := h.cfg.Monitor.Wait(ctx, id)
	if err == nil {
		err = h.cfg.Monitor.Forget(ctx, id)
	}
	if errors.Is(err, errdefs.ErrNotFound) {
		return nil
	}
	return err
}

// removeParents removes the directories above a trial's cgroups.
func removeParents(g *cgroup.Group) {
	for _, dir := range g.Dirs {
		_ = os.Remove(filepath.Dir(dir)) // fails where there is none, which is fine
	}
}

// tryUser lets the runtime start a container in a user namespace that is there
// already, as those of pods are.
func (d *Driver) tryUser(ctx context.Context, t tool, ociVersion string) error {
	if d.cfg.UserNS == nil {
		return errors.New("nobody has looked whether this host has user namespaces")
	}
	h, err := d.cfg.UserNS(ctx)
	if err != nil {
		return err
	}
	defer h.End()
	return d.try(ctx, t, ociVersion, h)
}
