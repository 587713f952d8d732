package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Observe says whether the pod still has everything that its containers rely
// on. Where something is missing that nobody here has taken away, the pod is not
// what its record says, and the error tells what it lost: its containers may be
// alive, so it has not simply ended.
func (d *Driver) Observe(_ context.Context, r *pod.Record) pod.Seen {
	err := d.whole(r)
	if err != nil {
		return pod.Seen{Err: fmt.Errorf("observe the sandbox of pod %s: %w", r.ID.Short(), err)}
	}
	return pod.Seen{Alive: true}
}

// whole returns what the pod lacks first.
func (d *Driver) whole(r *pod.Record) error {
	dir, err := d.dir(r.ID)
	if err != nil {
		return err
	}
	switch st, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return missing("its folder " + dir)
	case err != nil:
		return err
	case !st.IsDir():
		return missing("its folder " + dir + ", where something else is now,")
	}
	var pins []string
	for _, k := range kinds {
		if ns := *k.field(&r.Sandbox); ns != "" {
			pins = append(pins, ns)
		}
	}
	if _, err := os.ReadDir(filepath.Join(dir, nsFolder)); err != nil && len(pins) > 0 {
		return err
	}
	for _, ns := range pins {
		ok, err := pinned(ns)
		if err != nil {
			return err
		}
		if !ok {
			return missing("its namespace, which was pinned at " + ns + ",")
		}
	}
	return d.wholeCgroup(r)
}

// wholeCgroup looks for our own cgroup of a pod. The caller's is the caller's,
// and a runtime makes it anew.
func (d *Driver) wholeCgroup(r *pod.Record) error {
	own, name := d.ownCgroup(r.ID)
	if r.Sandbox.Cgroup != name {
		return nil
	}
	own.Resources = &cgroups.Resources{SkipDevices: true}
	m, err := manager.New(own)
	if err != nil {
		return fmt.Errorf("find the cgroup %s: %w", name, err)
	}
	for _, p := range m.GetPaths() {
		if _, err := os.Stat(p); err == nil {
			return nil
		}
	}
	return missing("its cgroup " + name + ", and with it the pod's limits,")
}

func missing(what string) error {
	return fmt.Errorf("%s is gone; stop and remove the pod, and its owner makes another: %w", what, errdefs.ErrNotFound)
}
