package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-spec/specs-go/features"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime/oci/criu"
)

// noCheckpoints says why a runtime cannot make checkpoints on this host, or nil.
func (d *Driver) noCheckpoints(ctx context.Context, name string, f *features.Features) error {
	switch {
	case name != "runc":
		return fmt.Errorf("checkpoints are made with runc alone, and this is %s", name)
	case f == nil || f.Annotations["org.opencontainers.runc.checkpoint.enabled"] != "true":
		return errors.New("this runc was built without checkpoints, or is older than 1.1")
	}
	return d.cfg.criu.Check(ctx, environ())
}

// Freeze stops all processes of a container until Thaw. It is idempotent.
func (h *Handler) Freeze(ctx context.Context, id string) error {
	g, err := h.group(id)
	if err == nil && g == nil {
		err = fmt.Errorf("its bundle does not say where its cgroup is: %w", errdefs.ErrPrecondition)
	}
	if err == nil {
		err = g.Freeze(ctx)
	}
	if err != nil {
		return fmt.Errorf("freeze container %s: %w", id, err)
	}
	return nil
}

// Thaw lets the processes of a container go on, and unblocks the network of its
// pod, which a criu that was killed has blocked. It does not mind a container that
// is not frozen, or gone.
func (h *Handler) Thaw(_ context.Context, id string) error {
	g, err := h.group(id)
	if err == nil && g != nil {
		err = g.Thaw()
	}
	if err != nil {
		return fmt.Errorf("thaw container %s: %w", id, err)
	}
	has, err := readAs[captured](h.folder(id))
	if err != nil {
		return nil // without a bundle there is no container
	}
	if netns := has.netns(); netns != "" {
		if err := criu.Unlock(netns); err != nil {
			h.cfg.Log.Warn("the network of a pod may be blocked", "container", id, "error", err)
		}
	}
	return nil
}

// captured is what a bundle says of how its container can be captured.
type captured struct {
	Annotations map[string]string `json:"annotations"`
	Linux       struct {
		UIDMappings []struct{}             `json:"uidMappings"`
		Namespaces  []specs.LinuxNamespace `json:"namespaces"`
	} `json:"linux"`
}

// netns is the path of the pod's network namespace, or "" if it is the node's.
func (c *captured) netns() string {
	for _, n := range c.Linux.Namespaces {
		if n.Type == specs.NetworkNamespace {
			return n.Path
		}
	}
	return ""
}

// Capture writes the state of a frozen container's processes into the folder
// "checkpoint" of an existing one, with criu's log and statistics beside it. The
// processes are frozen afterwards as well.
func (h *Handler) Capture(ctx context.Context, c *pod.Container, to string) error {
	if err := h.capture(ctx, c, to); err != nil {
		return fmt.Errorf("capture container %s with handler %s: %w", c.ID, h.def.Name, err)
	}
	return nil
}

func (h *Handler) capture(ctx context.Context, c *pod.Container, to string) error {
	id := string(c.ID)
	bundle := h.folder(id)
	has, err := readAs[captured](bundle)
	switch {
	case err != nil:
		return err
	case has.Annotations[criu.Annotation] != filepath.Join(bundle, criu.OptionsFile):
		return fmt.Errorf("its annotation %s is not the one that Fairlead gives it, as it was made by an earlier version or changed by a plugin; make it anew: %w", criu.Annotation, errdefs.ErrUnimplemented)
	case len(has.Linux.UIDMappings) > 0:
		return fmt.Errorf("it is in a user namespace of its pod, and runc cannot put a process back into one: %w", errdefs.ErrUnimplemented)
	case c.Config.Process.TTY:
		return fmt.Errorf("it has a terminal, whose other end is the monitor's and in no checkpoint: %w", errdefs.ErrUnimplemented)
	}
	g, err := h.group(id)
	if err != nil || g == nil {
		return errors.Join(err, errdefs.ErrPrecondition)
	}
	pids, err := g.PIDs()
	if err != nil {
		return err
	}
	images := filepath.Join(to, "checkpoint")
	if err := criu.PrepareDump(bundle, filepath.Join(bundle, ioFolder), images, pids); err != nil {
		return err
	}
	defer func() { _ = os.Remove(filepath.Join(bundle, criu.OptionsFile)) }() // goes with the bundle at the latest
	_, err = h.run(ctx, "checkpoint", "--leave-running", "--image-path", images, "--work-path", to,
		"--tcp-established", "--ext-unix-sk", "--file-locks", id)
	if said := criu.Failure(filepath.Join(to, "dump.log")); err != nil && said != "" && ctx.Err() == nil {
		return fmt.Errorf("criu says: %s: %w", said, err)
	}
	return err
}
