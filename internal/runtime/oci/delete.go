package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/sentry"
)

var (
	deleteKilled = failpoint.Register("delete.killed")
	deleteSaid   = failpoint.Register("delete.said")
)

// Delete makes the runtime forget a container, kills what is left in it, and
// removes its cgroup. A container that the runtime does not know is no error.
func (h *Handler) Delete(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	if err := h.delete(ctx, id); err != nil {
		return fmt.Errorf("delete container %s with handler %s: %w", id, h.def.Name, err)
	}
	return nil
}

func (h *Handler) delete(ctx context.Context, id string) error {
	g, err := h.group(id)
	if err != nil {
		return err
	}
	// Runtimes kill by polling, which takes them 100 ms; so nothing is left to
	// kill when they are asked.
	if g != nil {
		if err := g.KillRest(ctx); err != nil {
			return err
		}
	}
	if err := failpoint.Hit(deleteKilled); err != nil {
		return err
	}
	if err := h.deleteState(ctx, id, g != nil && h.leavesFolder(id)); err != nil {
		return err
	}
	if err := failpoint.Hit(deleteSaid); err != nil {
		return err
	}
	if g == nil {
		return nil
	}
	return g.Remove(ctx)
}

// deleteState makes the runtime forget a container. folder says that it keeps
// nothing of it but a folder, which needs no program to delete it.
func (h *Handler) deleteState(ctx context.Context, id string, folder bool) error {
	if h.tool.adapter == nil {
		// Whoever deletes the folder, the runtime or we, goes into what is mounted.
		if err := unmountLeft(h.tool.root, id); err != nil {
			return fmt.Errorf("take away what the runtime left mounted: %w", err)
		}
	}
	if folder {
		return h.forgetState(id)
	}
	if _, err := h.def.Program(); err != nil && h.tool.adapter == nil {
		// The program was taken off the host under its containers. Nothing runs
		// in this one any more, and what it kept of it is a folder below ours.
		return h.forgetState(id)
	}
	if h.forgot(id) {
		return nil
	}
	if h.sandboxed() {
		return h.deleteSandboxed(ctx, id)
	}
	err := h.runDelete(ctx, id)
	if err == nil || saysNotThere(err) {
		return nil
	}
	if errors.Is(err, errdefs.ErrDeadline) {
		return h.deleteHung(id, err)
	}
	// It holds the container for running: one without a bundle here, or one
	// that a crash left half made.
	forced := h.runDelete(ctx, "--force", id)
	if forced == nil || saysNotThere(forced) {
		return nil
	}
	return fmt.Errorf("%w (before, without --force: %s)", forced, err)
}

// runDelete runs the runtime's delete, for a while.
func (h *Handler) runDelete(ctx context.Context, args ...string) error {
	if h.tool.adapter == nil { // a shim may have a machine to take down
		bounded, cancel := context.WithTimeout(ctx, sayTimeout)
		defer cancel()
		ctx = bounded
	}
	_, err := h.run(ctx, append([]string{"delete"}, args...)...)
	return err
}

// deleteHung is for a container of which the runtime does not end the deletion.
// Once nothing of it runs any more, what the runtime keeps is deleted without it.
func (h *Handler) deleteHung(id string, hung error) error {
	idle, err := h.idle(id)
	if err != nil || !idle || h.tool.adapter != nil {
		return errors.Join(hung, err)
	}
	h.cfg.Log.Warn("the runtime hangs when it deletes a container; what it keeps of it is deleted without it", "container", id, "error", hung)
	return h.forgetState(id)
}

// idle says that no process is left of a container, or of its sandbox.
func (h *Handler) idle(id string) (bool, error) {
	has, err := readAs[traces](h.folder(id))
	if err != nil {
		return false, err
	}
	g, err := h.group(sandboxOf(id, has))
	if err != nil || g == nil {
		return false, err
	}
	pids, err := g.PIDs()
	return len(pids) == 0, err
}

// leavesFolder says that a container whose processes are gone has left nothing
// but a cgroup, which is ours to remove, and a folder of the runtime's. runc and
// crun make no more than these, unless systemd made the cgroup, there are hooks
// to run at the end, or a share of the processor's cache was set aside. Asking
// them takes as much of the processor as a twentieth of the pod's whole life.
func (h *Handler) leavesFolder(id string) bool {
	if r := h.runtime(); r != "runc" && r != "crun" || h.cfg.Systemd {
		return false
	}
	t, err := readAs[traces](h.folder(id))
	return err == nil && len(t.Hooks.Poststop) == 0 && len(t.Linux.IntelRdt) == 0
}

// forgot says that the runtime surely knows no such container, without asking
// it, which takes it some 10 ms: runc and crun have a folder for each, runsc a file. A
// container is deleted when it ends and when it is removed, and the second time
// is usually in vain.
func (h *Handler) forgot(id string) bool {
	name := h.runtime()
	if h.tool.adapter != nil {
		name = "runc" // a folder for each, too
	}
	switch name {
	case "runc", "crun":
		_, err := os.Lstat(filepath.Join(h.tool.root, id))
		return errors.Is(err, fs.ErrNotExist)
	case gVisor:
		files, err := stateFiles(h.tool.root, id)
		return err == nil && len(files) == 0
	}
	return false
}

// forgetState deletes what a runtime kept of a container.
func (h *Handler) forgetState(id string) error {
	root, err := os.OpenRoot(h.tool.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = errors.Join(root.RemoveAll(id), root.Close(), removeStateFiles(h.tool.root, id))
	}
	if socket, missing := sentry.Socket(h.tool.root, id); missing == nil && h.sandboxed() {
		err = errors.Join(err, ignoreMissing(os.Remove(socket)))
	}
	if err != nil {
		return fmt.Errorf("delete what the runtime kept in %s: %w", filepath.Join(h.tool.root, id), err)
	}
	return nil
}
