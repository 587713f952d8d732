package lifecycle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/stage"
	"fairlead.run/internal/undo"
)

var (
	runRecorded  = failpoint.Register("run.recorded")
	runSandboxed = failpoint.Register("run.sandboxed")
	runAttached  = failpoint.Register("run.attached")
	runFiled     = failpoint.Register("run.filed")
	runBundled   = failpoint.Register("run.bundled")
	runPaused    = failpoint.Register("run.paused")
	runTold      = failpoint.Register("run.told")
	runCommitted = failpoint.Register("run.committed")
)

// RunPod makes a pod ready for containers on the named handler, "" being the
// default, and returns its id. A pod with the same metadata that is being made
// is joined, and one that is there with the same configuration is returned.
func (c *Core) RunPod(ctx context.Context, cfg pod.Config, handler string) (pod.ID, error) {
	m := cfg.Metadata
	asked, err := ops.Ask(handler, &cfg)
	if err != nil {
		return "", err
	}
	t := ops.Task{
		Key:   fmt.Sprintf("pod %q %q %q %d", m.Namespace, m.Name, m.UID, m.Attempt),
		Asked: asked,
		About: ops.About{Verb: ops.Run, Kind: ops.KindPod, Name: podName(m, "")},
	}
	id, err := c.inAir.Do(ctx, t, func(ctx context.Context) (string, error) {
		id, err := c.runPod(ctx, cfg, handler)
		if err == nil {
			err = failpoint.Hit(runCommitted)
		}
		return string(id), err
	})
	if err != nil {
		return "", err
	}
	// The pod may be that of a request that this one has joined: one that named
	// the handler where this one wants the default, or the other way round.
	r, err := c.book.pod(pod.ID(id))
	if err != nil {
		return "", err
	}
	if handler == r.Handler || handler == r.Requested {
		return r.ID, nil
	}
	if h, err := c.Handlers.Get(handler); err != nil || h.Info().Name != r.Handler {
		return "", differs(r)
	}
	return r.ID, nil
}

func (c *Core) runPod(ctx context.Context, cfg pod.Config, handler string) (_ pod.ID, err error) {
	stage.Enter(ctx, "choose handler")
	h, err := c.Handlers.Get(handler)
	if err != nil {
		return "", err
	}
	if f := h.Info().Features; cfg.UserNamespace() != nil && !f.UserNamespaces {
		return "", fmt.Errorf("handler %s cannot run pods with a user namespace (hostUsers: false) on this node: %s: %w", h.Info().Name, f.NoUserNamespaces, errdefs.ErrUnimplemented)
	}
	if field, why := cfg.UnfitForSandbox(); field != "" && h.Info().OwnKernel {
		return "", fmt.Errorf("%s %s: pods of handler %s run in a sandbox with a kernel of its own; leave it out, or use a handler without a sandbox: %w", field, why, h.Info().Name, errdefs.ErrUnimplemented)
	}
	stage.Enter(ctx, "look for the same pod")
	if id, err := c.samePod(ctx, &cfg, h.Info().Name); id != "" || err != nil {
		return id, err
	}
	r := &pod.Record{
		Version:   pod.RecordVersion,
		ID:        pod.NewID(),
		Handler:   h.Info().Name,
		Revision:  h.Info().Revision,
		Requested: handler,
		State:     pod.Creating,
		CreatedAt: c.now(),
		Config:    cfg,
	}
	if err := c.Bundles.CheckSandbox(ctx, r, h.Info()); err != nil {
		return "", fmt.Errorf("run pod %s: %w", podName(cfg.Metadata, ""), err)
	}
	defer c.unmadePod(ctx, r.ID, &err)
	var u undo.Stack
	defer u.Rollback(ctx, &err)
	stage.Enter(ctx, "record")
	u.PushLast("delete record", func(ctx context.Context) error { return c.book.remove(ctx, r.ID) })
	r.Labels, err = c.Labels.Pod(r, h.Info(), func(levels iter.Seq[string]) string { return c.book.claimLevel(r.ID, levels) })
	if err != nil {
		return "", err
	}
	if err := c.book.add(ctx, r); err != nil {
		return "", err
	}
	if err := failpoint.Hit(runRecorded); err != nil {
		return "", err
	}
	r = clone(r)
	if err := c.assemble(ctx, &u, r, h); err != nil {
		return "", err
	}
	if err := c.tellRun(ctx, &u, r); err != nil {
		return "", err
	}
	stage.Enter(ctx, "commit")
	_, err = c.book.change(ctx, r.ID, func(now *pod.Record) error {
		now.Sandbox = r.Sandbox
		return advance(&now.State, pod.Prepared, pod.Started)
	})
	return r.ID, err
}

// samePod finds the pod that an earlier call with this metadata made. One that
// differs, or that was stopped, is in the way, and the error says so.
func (c *Core) samePod(ctx context.Context, cfg *pod.Config, handler string) (pod.ID, error) {
	for _, r := range c.book.list() {
		if r.Config.Metadata != cfg.Metadata {
			continue
		}
		if err := c.book.await(ctx, r.ID); err != nil {
			return "", err
		}
		now, err := c.book.pod(r.ID)
		if err != nil {
			continue // it was rolled back meanwhile
		}
		if now.State == pod.Creating {
			// This request is the only one that is at work on it.
			if err := c.takePodBack(ctx, now.ID); err != nil {
				return "", fmt.Errorf("take back what an earlier attempt has left: %w", err)
			}
			continue
		}
		if now.State == pod.Running && now.Handler == handler && equalJSON(&now.Config, cfg) {
			return now.ID, nil
		}
		return "", differs(now)
	}
	return "", nil
}

func differs(r *pod.Record) error {
	return fmt.Errorf("pod %s has this namespace, name, uid and attempt already, is %s on handler %s, and was asked for differently or stopped; remove it or count the attempt up: %w",
		r.ID, r.State, r.Handler, errdefs.ErrAlreadyExists)
}

// assemble makes everything that the pod needs and notes it in r.
func (c *Core) assemble(ctx context.Context, u *undo.Stack, r *pod.Record, h Handler) error {
	warm(h)
	stage.Enter(ctx, "make sandbox")
	u.Push("remove sandbox", func(ctx context.Context) error { return c.Sandboxes.Remove(ctx, r.ID) })
	u.Push("stop sandbox", func(ctx context.Context) error { return c.Sandboxes.Stop(ctx, r.ID) })
	sb, err := c.Sandboxes.Create(ctx, r.ID, &r.Config)
	if err != nil {
		return err
	}
	r.Sandbox = sb
	if err := failpoint.Hit(runSandboxed); err != nil {
		return err
	}
	if !r.Config.HostNetwork() {
		stage.Enter(ctx, "attach network")
		u.Push("detach network", func(ctx context.Context) error { return c.Network.Detach(ctx, r.ID) })
		if r.Sandbox.IPs, err = c.Network.Attach(ctx, r); err != nil {
			return err
		}
		if err := failpoint.Hit(runAttached); err != nil {
			return err
		}
	}
	warm(h) // the network may have taken long
	stage.Enter(ctx, "write files")
	if err := c.Sandboxes.WriteFiles(ctx, r); err != nil {
		return err
	}
	if err := failpoint.Hit(runFiled); err != nil {
		return err
	}
	if !h.Info().SandboxProcess && r.Config.Security.Namespaces.PID != pod.NamespacePod {
		return nil
	}
	return c.startPause(ctx, u, r, h)
}

// startPause runs the pod's own process, which holds its PID namespace.
func (c *Core) startPause(ctx context.Context, u *undo.Stack, r *pod.Record, h Handler) error {
	stage.Enter(ctx, "start sandbox process")
	id := string(r.ID)
	u.Push("remove sandbox bundle", func(ctx context.Context) error { return c.Bundles.Remove(ctx, id) })
	b, err := c.Bundles.WriteSandbox(ctx, r, h.Info())
	if err != nil {
		return err
	}
	for _, w := range b.Warnings {
		c.log.Warn("a wish of the pod cannot be met on this host", "pod", r.ID, "wish", w)
	}
	if err := failpoint.Hit(runBundled); err != nil {
		return err
	}
	u.Push("delete sandbox process", func(ctx context.Context) error { return c.dropProcess(ctx, h, id) })
	p, err := h.Start(ctx, pod.StartRequest{ID: id, Bundle: b})
	if err != nil {
		return err
	}
	r.Sandbox.Pause, r.Sandbox.OwnKernel = &p, h.Info().OwnKernel
	if r.Config.Security.Namespaces.PID == pod.NamespacePod {
		r.Sandbox.PIDNS = fmt.Sprintf("/proc/%d/ns/pid", p.Inside())
	}
	return failpoint.Hit(runPaused)
}

// dropProcess makes the runtime and the monitor forget a process and end what
// is left of it.
func (c *Core) dropProcess(ctx context.Context, h Handler, id string) error {
	if err := h.Delete(ctx, id); err != nil {
		return err
	}
	return c.Exits.Forget(ctx, id)
}

// advance moves a state through events, in their order.
func advance(s *pod.State, events ...pod.Event) error {
	for _, e := range events {
		to, err := s.On(e)
		if err != nil {
			return err
		}
		*s = to
	}
	return nil
}

// equalJSON compares as the record does: a nil and an empty map are the same.
func equalJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
