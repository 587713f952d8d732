package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/runtime/oci/cgroup"
)

// missing is the program of a trial's container. There is none in its root.
const missing = "/fairlead-trial"

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

// try lets the runtime start a container that has no program: it makes the
// cgroup, the namespaces, the mounts and the root file system, and then cannot
// find it. That proves all of this, takes no image, and leaves no process.
func (d *Driver) try(ctx context.Context, t tool, ociVersion string) (err error) {
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
	s := trialSpec(ociVersion, id, d.cfg.Systemd)
	defer func() { err = errors.Join(err, d.endTrial(ctx, t, bundle, id)) }()
	if err := writeTrial(bundle, s); err != nil {
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

func writeTrial(bundle string, s *specs.Spec) error {
	if err := os.Mkdir(filepath.Join(bundle, "rootfs"), 0o755); err != nil {
		return err
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(bundle, "config.json"), data, 0o600)
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	h := &Handler{cfg: d.cfg, def: t.def, tool: t}
	path, err := h.cgroup(bundle)
	if err == nil {
		var g *cgroup.Group
		if g, err = cgroup.New(cgroupRoot, path); err == nil {
			err = errors.Join(g.KillRest(ctx), h.deleteState(ctx, id), g.Remove(ctx))
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

// trialSpec is a container as small as runtimes take it.
func trialSpec(ociVersion, id string, systemd bool) *specs.Spec {
	// The directory above is the trial's own too: one that trials share would
	// be removed by one while another makes its own in it.
	cgroup := "/fairlead-" + id + "/" + id
	if systemd {
		cgroup = "system.slice:fairlead:" + id
	}
	return &specs.Spec{
		Version:  ociVersion,
		Hostname: "trial",
		Root:     &specs.Root{Path: "rootfs"},
		Process: &specs.Process{
			Args:            []string{missing},
			Cwd:             "/",
			Env:             []string{"PATH=/"},
			NoNewPrivileges: true,
			Capabilities:    &specs.LinuxCapabilities{},
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=64k"}},
		},
		Linux: &specs.Linux{
			CgroupsPath: cgroup,
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
			},
			MaskedPaths: []string{"/proc/kcore"},
		},
	}
}
