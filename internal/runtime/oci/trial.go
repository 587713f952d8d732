package oci

import (
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

	"fairlead.run/internal/runtime/oci/cgroup"
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
	err := d.tryOnce(ctx, t, ociVersion, in)
	if err == nil || ctx.Err() != nil || badOCI.MatchString(err.Error()) {
		return err
	}
	d.cfg.Log.Info("trial of a handler failed, and is repeated", "handler", t.def.Name, "error", err)
	return d.tryOnce(ctx, t, ociVersion, in)
}

// tryOnce lets the runtime start a container that has no program: it makes the
// cgroup, the namespaces, the mounts and the root file system, and then cannot
// find it. That proves all of this, takes no image, and leaves no process.
func (d *Driver) tryOnce(ctx context.Context, t tool, ociVersion string, in *userns.Holder) (err error) {
	for _, dir := range []string{t.root, filepath.Join(d.cfg.StateDir, trialsFolder)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("prepare a trial: %w", err)
		}
	}
	d.sweepTrials(ctx, t)
	unique := randomHex(8)
	id, bundle := trialPrefix+unique, filepath.Join(d.cfg.StateDir, trialsFolder, t.def.Name+"-"+unique)
	defer d.trials.begin(id, filepath.Base(bundle))()
	if err := os.Mkdir(bundle, 0o700); err != nil {
		return fmt.Errorf("prepare a trial: %w", err)
	}
	s := trial.Spec(ociVersion, id, d.cfg.Systemd)
	if in != nil {
		trial.Join(s, in)
	}
	defer func() { err = errors.Join(err, d.endTrial(ctx, t, bundle, id)) }()
	if err := trial.Write(bundle, s); err != nil {
		return fmt.Errorf("prepare a trial: %w", err)
	}
	_, err = t.run(ctx, "run", "--bundle", bundle, id)
	var said *toolError
	switch {
	case err == nil:
		return errors.New("it says that it has run a program that does not exist")
	case errors.As(err, &said) && noProgram.MatchString(said.msg):
		return nil
	case errors.As(err, &said):
		return fmt.Errorf("a container on trial fails: %w", explain(said.msg, nil, nil))
	}
	return fmt.Errorf("a container on trial fails: %w", err)
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
	h := &Handler{cfg: d.cfg, def: t.def, tool: t}
	path, err := h.cgroup(bundle)
	if err == nil {
		var g *cgroup.Group
		if g, err = cgroup.New(cgroupRoot, path); err == nil {
			err = errors.Join(g.KillRest(ctx), h.deleteState(ctx, id, false), g.Remove(ctx))
			if !d.cfg.Systemd {
				removeParents(g)
			}
		}
	}
	var broken *brokenBundle
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &broken) {
		err = nil // it was cut off before anything ran
	}
	err = errors.Join(err, os.RemoveAll(bundle))
	if err != nil {
		return fmt.Errorf("clean up after the trial: %w", err)
	}
	return nil
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
