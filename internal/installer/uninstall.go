package installer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/installer/containerd"
	"fairlead.run/internal/installer/cri"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/files"
	"fairlead.run/internal/installer/journal"
)

var (
	removing  = failpoint.Register("install.removing")
	unhooked  = failpoint.Register("install.unhooked")
	unserved  = failpoint.Register("install.unserved")
	deleted   = failpoint.Register("install.deleted")
	forgotten = failpoint.Register("install.forgotten")
)

// Remove takes away what a payload brings. What is not installed is removed already, so
// that it can be repeated.
func (i *Installer) Remove(ctx context.Context, kind string) payload.InstallResult {
	r := i.Uninstall(ctx, kind)
	if r.Reason == payload.NotInstalled {
		r.State, r.Reason, r.Message = payload.Removed, "", ""
	}
	return r
}

// Uninstall takes a type of runtime away, or says which pods still use it. A type that
// is not installed is refused, as somebody has named it who may mean another one. It may
// have other names; the first that is installed counts.
func (i *Installer) Uninstall(ctx context.Context, name string, others ...string) payload.InstallResult {
	u := &removal{turn: turn{Installer: i}, names: append([]string{name}, others...), kind: name}
	err := u.run(ctx)
	r := payload.InstallResult{
		APIVersion: payload.APIVersion, Kind: payload.KindResult, Type: u.kind, State: payload.Removed,
		Restarted: u.restarted, Warnings: u.warnings,
	}
	if u.seen.Name != "" {
		r.Runtime = u.seen.Name + " " + u.seen.Version
	}
	r.Served = i.serving(ctx, u.kind)
	if err == nil {
		return r
	}
	r.Reason = fault.Of(err)
	r.State, r.Message = u.failure(err)
	return r
}

// removal is one call of Uninstall.
type removal struct {
	turn
	// names are those by which somebody may know the type, and kind is its own.
	names  []string
	kind   string
	record *journal.Record
}

func (u *removal) run(ctx context.Context) error {
	if u.find() == nil {
		u.outlast(ctx)
	}
	unlock, err := u.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := u.find(); err != nil {
		return err
	}
	if u.seen, err = u.settle(ctx); err != nil {
		return err
	}
	if u.number, err = u.nextTurn(); err != nil {
		return err
	}
	if u.record, err = u.journal.Read(u.kind); err != nil {
		return err
	}
	if err := u.runtime.InUse(ctx, u.handlers()); err != nil {
		return err
	}
	if err := u.unhook(ctx); err != nil {
		return err
	}
	return u.delete()
}

// find sets which of the names is that of a type on this node.
func (u *removal) find() error {
	types, err := u.journal.Types()
	if err != nil {
		return err
	}
	at := slices.IndexFunc(u.names, func(n string) bool { return slices.Contains(types, n) })
	if at >= 0 {
		u.kind = u.names[at]
		return nil
	}
	here := "nothing is"
	if len(types) > 0 {
		here = "what is installed is " + strings.Join(types, " and ")
	}
	return fault.New(payload.NotInstalled, "%s is not installed on this node, by the journal in %s; %s", u.names[0], u.options.State, here)
}

// outlast waits for what pods that were deleted have left.
func (u *removal) outlast(ctx context.Context) {
	r, err := u.journal.Read(u.kind)
	if err != nil {
		return // it is read again, and told of
	}
	if n := u.runtime.Ended(ctx, r.Handlers()); n > 0 {
		u.log.Info("waiting for the kubelet to remove the sandboxes of pods that have ended", "sandboxes", n, "for", u.options.Linger)
		ctx, cancel := context.WithTimeout(ctx, u.options.Linger)
		defer cancel()
		u.runtime.Outlast(ctx, r.Handlers())
	}
}

// handlers are all that the type has had and that pods may be on.
func (u *removal) handlers() []string { return u.record.Handlers() }

// unhook takes the handlers out of the runtime's configuration, before any file of
// theirs goes.
func (u *removal) unhook(ctx context.Context) error {
	r := u.record
	if err := errors.Join(u.pending(u.seen), u.reloadable(u.seen, []*install{{job: &job{}, record: r}}), u.startable()); err != nil {
		return err
	}
	if err := begin(r, u.number, 0, u.seen); err != nil {
		return err
	}
	changes, err := u.plan(u.seen, r, &job{})
	if err != nil {
		return err
	}
	r.Phase = journal.Removing
	u.changed = true
	if err := u.takeOut(ctx, changes); err != nil {
		u.log.Error("the removal failed and is undone", "err", err)
		u.putBack(ctx, []*journal.Record{u.record})
		return err
	}
	return failpoint.Hit(unhooked)
}

// startable refuses to take handlers out that are served where the runtime would not come
// back from the restart that this takes.
func (u *removal) startable() error {
	served := slices.ContainsFunc(u.handlers(), func(h string) bool { return slices.Contains(u.seen.Handlers, h) })
	if !served {
		return nil
	}
	if u.dist.Runtime == "crio" {
		c, err := u.loadCRIO()
		if err != nil {
			return err
		}
		return c.Startable(u.kind)
	}
	c, err := u.load()
	if err != nil {
		return err
	}
	for _, text := range c.Ignored() {
		u.warnings = append(u.warnings, text+", so that it may be read by nobody")
	}
	if err := c.Startable(); err != nil {
		return err
	}
	d := containerd.Daemon{Loaded: u.seen.Loaded}
	if d.Major, d.Minor, err = u.seen.Release(); err != nil {
		return err
	}
	return c.Remaining(d, containerd.Want{Type: u.kind, Owned: u.record.Owned(), Base: u.record.Base, Written: u.record.Written})
}

// takeOut makes the changes that take the handlers out, and puts them in force.
func (u *removal) takeOut(ctx context.Context, changes []files.Change) error {
	if err := u.write(u.record, changes); err != nil {
		return err
	}
	if err := failpoint.Hit(removing); err != nil {
		return err
	}
	if err := u.forgetful(ctx); err != nil {
		return err
	}
	return u.unused(ctx, u.handlers()) // a pod may have come in the last moment
}

// forgetful restarts the runtime, unless it does not know the handlers any more,
// and sees that it has all others.
func (u *removal) forgetful(ctx context.Context) error {
	gone := func(now cri.Seen) error {
		for _, h := range u.handlers() {
			if slices.Contains(now.Handlers, h) {
				return fault.New(payload.HandlerNotServed, "handler %s is still served", h)
			}
		}
		return kept(now, u.record.Served, u.handlers())
	}
	if now, err := u.runtime.Probe(ctx); err == nil && now.NotReady == "" && gone(now) == nil {
		return nil
	}
	warning, err := u.dump(ctx)
	if err != nil {
		return err
	}
	if warning != "" {
		u.warnings = append(u.warnings, warning)
	}
	if err := u.rest(ctx); err != nil {
		return err
	}
	if err := u.journal.NoteRestart(time.Now()); err != nil {
		return err
	}
	u.log.Info("restarting the runtime", "how", u.restarter.String())
	u.restarted = true
	if err := u.restarter.Restart(ctx); err != nil {
		return fault.New(payload.RestartFailed, "%w", err)
	}
	if err := failpoint.Hit(unserved); err != nil {
		return err
	}
	return u.await(ctx, gone)
}

// delete removes all files of the type. It can be repeated.
func (u *removal) delete() error {
	r, handlers := u.record, u.handlers()
	for _, rel := range []*journal.Release{r.Now, r.Next} {
		if rel != nil {
			r.Retire(rel)
		}
	}
	r.Settle()
	r.Phase, r.Now = journal.Deleting, nil
	if err := u.journal.Write(r); err != nil {
		return err
	}
	releases := r.Old
	for n := range releases {
		for _, dir := range []string{releases[n].Dir, releases[n].Config} {
			if dir == "" {
				continue
			}
			if err := os.RemoveAll(u.host(dir)); err != nil {
				return fmt.Errorf("remove version %s: %w", releases[n].Version, err)
			}
		}
	}
	if err := failpoint.Hit(deleted); err != nil {
		return err
	}
	if err := u.unmake(r); err != nil {
		return err
	}
	if _, err := os.Lstat(u.host(r.Base)); err == nil {
		u.warnings = append(u.warnings, r.Base+" has files that are not the installer's, and stays")
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", r.Base, err)
	}
	if err := u.handOver(r, handlers); err != nil {
		return err
	}
	if err := u.journal.Forget(u.kind); err != nil {
		return err
	}
	return failpoint.Hit(forgotten)
}

// handOver tells the other types what a type that goes leaves to them: the folders
// that were made for it and are still there, which go with the last, and that its
// handlers are not to be waited for.
func (i *Installer) handOver(gone *journal.Record, handlers []string) error {
	all, err := i.journal.All()
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(r *journal.Record) bool { return r.Type == gone.Type })
	for n, other := range all {
		served := len(other.Served)
		other.Served = slices.DeleteFunc(other.Served, func(h string) bool { return slices.Contains(handlers, h) })
		var made []string
		for _, d := range gone.Made {
			if _, err := os.Lstat(i.host(d)); n == 0 && err == nil && !slices.Contains(other.Made, d) {
				made = append(made, d)
			}
		}
		if len(other.Served) == served && len(made) == 0 {
			continue
		}
		other.Made = append(made, other.Made...)
		if err := i.journal.Write(other); err != nil {
			return err
		}
	}
	return nil
}
