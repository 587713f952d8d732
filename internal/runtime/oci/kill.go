package oci

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime/oci/cgroup"
	"fairlead.run/internal/runtime/oci/process"
	"fairlead.run/internal/runtime/oci/signame"
)

// Kill signals the container's first process, or with all everything in its
// cgroup. It does not wait for the end. What is gone needs no signal, and is no
// error.
func (h *Handler) Kill(ctx context.Context, c *pod.Container, sig string, all bool) error {
	number, err := signame.Parse(sig)
	if err != nil {
		return fmt.Errorf("kill container %s: %w", c.ID, err)
	}
	recorded := c.Process != nil && c.Process.StartTime != 0
	switch {
	case !recorded && number == sigKill && h.cfg.Monitor.GiveUp(ctx, string(c.ID)) == nil:
		// It was still being started, for an earlier daemon, and gets no further.
	case h.tool.adapter != nil:
		err = h.killAdapted(ctx, c, number, all)
	case h.sandboxed():
		err = h.killSandboxed(ctx, c, number, all)
	case all:
		err = h.killAll(ctx, c, number)
	case !recorded: // the monitor knows it
		err = ignoreNotFound(h.cfg.Monitor.Signal(ctx, string(c.ID), number, false))
	default:
		err = process.Signal(c.Process, number)
	}
	if err != nil {
		return fmt.Errorf("send %s to container %s: %w", sig, c.ID, err)
	}
	return nil
}

func (h *Handler) killAll(ctx context.Context, c *pod.Container, sig unix.Signal) error {
	g, err := h.group(string(c.ID))
	switch {
	case err != nil:
		return err
	case g != nil:
		return g.Signal(ctx, sig)
	case c.Process != nil:
		return process.Signal(c.Process, sig) // the rest of it is Delete's
	}
	return nil
}

// cgroupRoot is where cgroups are mounted.
const cgroupRoot = cgroup.Root

// group is the cgroup of a container, or nil if its bundle does not tell. Then
// it is left to the runtime, which keeps a record of its own.
func (h *Handler) group(id string) (*cgroup.Group, error) {
	path, err := h.cgroup(h.folder(id))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case errors.As(err, new(*brokenBundle)):
		// A container that nobody could delete would be worse.
		h.cfg.Log.Warn("cannot find the cgroup of a container", "container", id, "error", err)
		return nil, nil
	case err != nil || path == "":
		return nil, err
	}
	return cgroup.New(cgroupRoot, path)
}

// cgroup is where the container of a bundle is in each hierarchy, or "" if the
// bundle leaves that to the runtime.
func (h *Handler) cgroup(bundle string) (string, error) {
	t, err := readAs[traces](bundle)
	if err != nil {
		return "", err
	}
	return h.cgroupOf(t)
}

func (h *Handler) cgroupOf(t *traces) (string, error) {
	if t.Linux.CgroupsPath == "" {
		return "", nil
	}
	return cgroup.Path(t.Linux.CgroupsPath, h.cfg.Systemd)
}
