package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
)

// Handlers implements adminv1.Server.
func (a admin) Handlers(_ context.Context, s adminv1.Stream) error {
	return adminv1.SendJSON(s, adminv1.HandlersReply{Handlers: a.describeHandlers()})
}

// Overhead implements adminv1.Server.
func (a admin) Overhead(ctx context.Context, s adminv1.Stream) error { return a.meter.Serve(ctx, s) }

// VerifyHandler implements adminv1.Server. A client that does not take the steps
// any more is noticed at the end; a trial always runs to its own.
func (a admin) VerifyHandler(ctx context.Context, s adminv1.Stream) error {
	var req adminv1.VerifyRequest
	if err := adminv1.ReceiveJSON(s, &req); err != nil {
		return fmt.Errorf("verify a handler: read the request: %w (%w)", err, errdefs.ErrInvalidArgument)
	}
	found, err := a.handlers.Verify(ctx, req.Name, func(step string) { _ = adminv1.SendJSON(s, adminv1.VerifyEvent{Step: step}) })
	if err != nil {
		return err
	}
	e := adminv1.VerifyEvent{Done: true, Works: found.Ready, Reason: found.Reason}
	for _, h := range a.describeHandlers() {
		if h.Name == found.Name {
			e.Handler = &h
		}
	}
	return adminv1.SendJSON(s, e)
}

// ChangeHandler implements adminv1.Server.
func (a admin) ChangeHandler(ctx context.Context, s adminv1.Stream) error {
	var req adminv1.ChangeRequest
	if err := adminv1.ReceiveJSON(s, &req); err != nil {
		return fmt.Errorf("change a handler: read the request: %w (%w)", err, errdefs.ErrInvalidArgument)
	}
	tell := func(step string) { _ = adminv1.SendJSON(s, adminv1.VerifyEvent{Step: step}) }
	err := a.changes.change(ctx, req.Verb, req.Name, req.Settings, tell)
	signal(a.changes.fewer)
	if err != nil {
		return err
	}
	e := adminv1.VerifyEvent{Done: true, Works: true}
	for _, h := range a.describeHandlers() {
		if h.Name == req.Name {
			e.Handler = &h
		}
	}
	return adminv1.SendJSON(s, e)
}

// pruneHandlers forgets revisions of handlers with their last pods, until ctx
// ends.
func (d *Daemon) pruneHandlers(ctx context.Context) error {
	starting := func() bool {
		return slices.ContainsFunc(d.core.Operations(), func(o ops.Operation) bool { return o.Verb == ops.Run || o.Verb == ops.Restore })
	}
	for {
		var again <-chan time.Time
		switch waits, err := d.parts.handlers.Prune(starting); {
		case err != nil:
			d.log.Warn("a revision of a handler that nobody needs cannot be removed", "error", err)
			again = time.After(time.Minute)
		case waits:
			again = time.After(time.Second)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-d.parts.changes.fewer:
		case <-again:
		}
	}
}

// followConfig takes up changes of the configuration until ctx ends.
func (d *Daemon) followConfig(ctx context.Context) error {
	err := d.source.Follow(ctx, func() {
		d.parts.changes.reload(ctx, d.source.Load)
		signal(d.parts.changes.fewer)
	})
	if err != nil && ctx.Err() == nil {
		d.log.Warn("changes of the configuration are not seen; restart the daemon for one", "error", err)
	}
	return nil
}

func (a admin) describeHandlers() []adminv1.Handler {
	out := []adminv1.Handler{}
	used, starts := map[string]int{}, a.pods.StartMedians()
	for _, r := range a.pods.Pods() {
		used[r.Handler]++
	}
	for _, i := range a.handlers.List() {
		out = append(out, adminv1.Handler{
			Name: i.Name, State: string(i.State()), VerifiedAt: i.VerifiedAt,
			TrialStartMS: milliseconds(i.Trial.Start), StartP50MS: milliseconds(starts[i.Name]), OverheadBytes: i.Trial.Overhead, Overhead: a.meter.Of(&i),
			Features: featureNames(&i.Features), Pods: used[i.Name],
		})
	}
	return out
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// featureNames are those that a handler has, in a fixed order.
func featureNames(f *pod.HandlerFeatures) []string {
	out := []string{}
	for _, has := range []struct {
		name string
		yes  bool
	}{
		{"user-namespaces", f.UserNamespaces},
		{"recursive-read-only-mounts", f.RecursiveReadOnlyMounts},
		{"seccomp", f.Seccomp},
		{"apparmor", f.AppArmor},
		{"selinux", f.SELinux},
		{"devices", f.Devices},
		{"resize", f.Resize},
		{"stats", f.Stats},
		{"checkpoints", f.Checkpoints},
	} {
		if has.yes {
			out = append(out, has.name)
		}
	}
	return out
}
