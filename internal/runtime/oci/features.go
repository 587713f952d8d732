package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime/oci/cgroup"
	"fairlead.run/internal/sentry"
)

// inside are what the program in the container of a trial looks for.
var inside = []string{monitorv1.TrialSeccomp, monitorv1.TrialReadOnly, monitorv1.TrialDevice}

// outside are what is tried from the host while it runs.
const (
	resizing  = "resize"
	measuring = "stats"
)

// seen is what one trial has found. Of what is not in lacks, the container has
// all that it was wanted to have.
type seen struct {
	pod.HandlerTrial
	runtime string   // what the program calls itself
	word    string   // that the program says at the end
	wanted  []string // that it looks for
	lacks   map[string]error
}

// take notes what the program said.
func (s *seen) take(output string) {
	for _, name := range s.wanted {
		_, found, ok := strings.Cut("\n"+output, "\n"+name+" ")
		found, _, _ = strings.Cut(found, "\n")
		switch why, no := strings.CutPrefix(found, "no: "); {
		case !ok:
			s.lacks[name] = errors.New("the program on trial says nothing of it")
		case no || found != "yes":
			s.lacks[name] = errors.New(why)
		}
	}
}

// lookFrom tries from the host what needs a container that runs.
func (s *seen) lookFrom(ctx context.Context, d *Driver, t tool, bundle, id string) {
	h := &Handler{cfg: d.cfg, def: t.def, tool: t}
	path, err := h.cgroup(bundle)
	var g *cgroup.Group
	if err == nil {
		g, err = cgroup.New(cgroupRoot, path)
	}
	if err != nil {
		s.lacks[resizing], s.lacks[measuring] = err, err
		return
	}
	if sandboxes(s.runtime) {
		s.note(measuring, measureInside(ctx, t, id))
		s.note(resizing, g.TryShares(trialShares)) // what is limited is the cgroup of the sandbox
		return
	}
	s.note(measuring, g.Measured())
	s.note(resizing, resize(ctx, t, g, bundle, id))
}

func (s *seen) note(name string, err error) {
	if err != nil {
		s.lacks[name] = err
	}
}

// trialShares are processor shares that nothing has by itself.
const trialShares = 512

// resize lets the runtime change a limit, and looks whether it has.
func resize(ctx context.Context, t tool, g *cgroup.Group, bundle, id string) error {
	data, err := json.Marshal(specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: new(uint64(trialShares))}})
	file := filepath.Join(bundle, "resources.json")
	if err := errors.Join(err, os.WriteFile(file, data, 0o600)); err != nil {
		return err
	}
	before, err := g.Shares()
	if err != nil {
		return err
	}
	if err := t.talk(ctx, nil, &tail{max: errOutput}, "update", "--resources", file, id); err != nil {
		return err
	}
	after, err := g.Shares()
	if err == nil && after == before {
		err = fmt.Errorf("it says that it has changed the processor shares, which are %s as before", after)
	}
	return err
}

// measureInside asks the sandbox of a trial what its container uses.
func measureInside(ctx context.Context, t tool, id string) error {
	socket, err := sentry.Socket(t.root, id)
	if err != nil {
		return err
	}
	found, err := sentry.Measure(ctx, socket, []string{id})
	if err == nil && (len(found) != 1 || found[0].Memory == nil || found[0].CPU == nil) {
		err = errors.New("it tells neither processor time nor memory of its container")
	}
	return err
}

// features are what a runtime can do as it was seen in a trial.
func (d *Driver) features(ctx context.Context, t tool, all *seen, info *pod.HandlerInfo) {
	f := &info.Features
	for name, has := range map[string]*bool{
		monitorv1.TrialSeccomp: &f.Seccomp, monitorv1.TrialReadOnly: &f.RecursiveReadOnlyMounts,
		monitorv1.TrialDevice: &f.Devices, resizing: &f.Resize, measuring: &f.Stats,
	} {
		why := all.lacks[name]
		*has = why == nil
		if why == nil {
			continue
		}
		f.Unsure = f.Unsure || late(ctx, why)
		d.cfg.Log.Info("runtime handler lacks a feature", "handler", t.def.Name, "feature", name, "reason", why)
	}
}
