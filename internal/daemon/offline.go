package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	adminv1 "fairlead.run/api/admin/v1"
	config "fairlead.run/api/config/v1alpha1"
	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image"
	"fairlead.run/internal/lifecycle"
	"fairlead.run/internal/monitor/client"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/store"
)

// Fsck audits a node on which no daemon runs. It has the state directory to
// itself meanwhile, and repairs nothing that it is not asked to, unlike a
// daemon that starts.
func Fsck(ctx context.Context, cfg *config.Config, log *slog.Logger, req adminv1.FsckRequest) (_ adminv1.FsckReply, err error) {
	var none adminv1.FsckReply
	if missing(cfg.State) && missing(cfg.Root) {
		none.Findings = []adminv1.Finding{}
		return none, nil // Fairlead never ran here
	}
	if err := makeDirs(cfg); err != nil {
		return none, err
	}
	p, err := openIdle(ctx, cfg, log)
	if err != nil {
		return none, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	core := &idleCore{}
	if core.records, err = lifecycle.Known(ctx, p.core, log); err != nil {
		return none, err
	}
	if req.Repair {
		// Before anything is released: it may be all that keeps a layer.
		if err := p.core.Images.SyncUses(ctx, core.uses()); err != nil {
			return none, err
		}
	}
	return fsck(ctx, p.auditor(core, req.VerifyContent), req.Repair)
}

func missing(dir string) bool {
	_, err := os.Stat(dir)
	return errors.Is(err, fs.ErrNotExist)
}

// openIdle is openParts for an audit: nothing is started and nothing tidied.
func openIdle(ctx context.Context, cfg *config.Config, log *slog.Logger) (_ *parts, err error) {
	p := &parts{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.records, err = store.Open(cfg.State); err != nil {
		return nil, err
	}
	images := imageSettings(cfg, log)
	images.Untouched = true
	if p.images, err = image.Open(ctx, images); err != nil {
		return nil, err
	}
	if p.network, err = openNetwork(cfg, log); err != nil {
		return nil, err
	}
	// Only for messages: no program is started.
	program, err := monitorProgram(cfg)
	if err != nil && !errors.Is(err, errdefs.ErrNotFound) {
		return nil, err
	}
	p.monitor = client.Find(client.Options{StateDir: cfg.State, Binary: program})
	if err := p.openHandlers(cfg, idleMonitor{p.monitor}, program, log); err != nil {
		return nil, err
	}
	err = p.openCore(cfg, program, log)
	p.keepers.captures.Idle = true
	return p, err
}

// idleMonitor lists the processes of a monitor, if one runs, and starts none.
type idleMonitor struct{ *client.Client }

func (m idleMonitor) List(ctx context.Context) ([]monitorv1.Process, error) {
	return m.Peek(ctx)
}

// idleCore is the records of a node that nobody changes.
type idleCore struct{ records []*pod.Record }

// Records implements audit.Core.
func (c *idleCore) Records(context.Context) ([]*pod.Record, error) { return c.records, nil }

// Hold implements audit.Core. Who has the state directory has all pods.
func (c *idleCore) Hold(_ context.Context, id pod.ID, _ pod.ContainerID, do func(*pod.Record) error) error {
	for _, r := range c.records {
		if r.ID == id {
			return do(r)
		}
	}
	return fmt.Errorf("pod %q: %w", id, errdefs.ErrNotFound)
}

func (c *idleCore) uses() map[pod.ContainerID][]string {
	out := map[pod.ContainerID][]string{}
	for _, r := range c.records {
		for _, ctr := range r.Containers {
			out[ctr.ID] = ctr.Images()
		}
	}
	return out
}
