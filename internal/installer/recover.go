package installer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/installer/cri"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/journal"
)

var (
	undoing   = failpoint.Register("install.undoing")
	undone    = failpoint.Register("install.undone")
	collected = failpoint.Register("install.collected")
)

// settle finishes what earlier installers were undoing, and asks the runtime. If
// that does not answer after a change that was cut off, the change is undone.
func (i *Installer) settle(ctx context.Context) (cri.Seen, error) {
	types, err := i.journal.Types()
	if err != nil {
		return cri.Seen{}, err
	}
	seen, failed := i.look(ctx)
	for _, kind := range types {
		r, err := i.journal.Read(kind)
		if err != nil {
			return seen, err
		}
		changing := r.Phase == journal.Writing || r.Phase == journal.Restarting || r.Phase == journal.Removing
		down := failed != nil && changing
		if r.Phase != journal.RollingBack && !down {
			continue
		}
		i.log.Warn("undoing a change that was cut off", "type", kind, "phase", r.Phase)
		if err := i.undo(ctx, []*journal.Record{r}, true); err != nil {
			return seen, fmt.Errorf("undo a change of %s that was cut off: %w", kind, err)
		}
		seen, failed = i.look(ctx)
	}
	return seen, failed
}

// fail undoes what a turn has done, notes the failure, and returns what is to be
// reported.
func (t *turn) fail(ctx context.Context, cause error) error {
	// The undo has time of its own: the reason may be that there was none left.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.options.Wait+2*time.Minute)
	defer cancel()
	t.log.Error("the change failed and is undone", "err", cause)
	var records []*journal.Record
	for _, in := range t.all {
		r := in.record
		if r.Phase == journal.Done {
			continue
		}
		if r.FailedHash != in.job.release.Hash {
			r.Failed, r.FailedHash = 0, in.job.release.Hash
		}
		r.Failed++
		r.LastError, r.LastReason = cause.Error(), string(fault.Of(cause))
		r.Retry = time.Now().Add(backoff(r.Failed))
		records = append(records, r)
	}
	if len(records) == 0 {
		return nil // it failed after the last word was written
	}
	t.back = t.undo(ctx, records, t.restarted)
	return cause
}

// backoff is how long to wait after a number of failures.
func backoff(failed int) time.Duration {
	return min(30*time.Second<<min(failed-1, 10), time.Hour)
}

// undo puts the configuration back as it was before the records' changes, restarts
// the runtime if it may have read them, and sees that all handlers of before are
// served.
func (i *Installer) undo(ctx context.Context, records []*journal.Record, restarted bool) error {
	for _, r := range records {
		r.Phase = journal.RollingBack
		if err := i.journal.Write(r); err != nil {
			return err
		}
	}
	if err := failpoint.Hit(undoing); err != nil {
		return err
	}
	// Without an answer there is no version, which only an edit by others needs.
	seen, _ := i.runtime.Probe(ctx)
	for _, r := range slices.Backward(records) {
		if err := i.restore(seen, r); err != nil {
			return err
		}
	}
	whole := func(now cri.Seen) error { return i.whole(now, records) }
	if restarted || i.await(ctx, whole) != nil {
		if err := i.again(ctx, seen); err != nil {
			return err
		}
		if err := i.await(ctx, whole); err != nil {
			return err
		}
	}
	if err := failpoint.Hit(undone); err != nil {
		return err
	}
	for _, r := range records {
		if err := i.settled(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// again restarts the runtime for an undo. One that works is given its minute; one
// that does not is helped at once.
func (i *Installer) again(ctx context.Context, seen cri.Seen) error {
	if seen.Name != "" && seen.NotReady == "" {
		if err := i.rest(ctx); err != nil {
			return err
		}
	}
	if err := i.journal.NoteRestart(time.Now()); err != nil {
		return err
	}
	i.log.Warn("restarting the runtime with its old configuration", "how", i.restarter.String())
	if err := i.restarter.Restart(ctx); err != nil {
		return fault.New(payload.RestartFailed, "%w", err)
	}
	return nil
}

// whole says which handler of before is not served as it was.
func (i *Installer) whole(now cri.Seen, records []*journal.Record) error {
	for _, r := range records {
		if err := kept(now, r.Served, nil); err != nil {
			return err
		}
		old, err := i.rendered(r.Now)
		if err != nil {
			return err
		}
		if r.Now != nil {
			old.release = *r.Now
		}
		if err := served(now, old); err != nil {
			return err
		}
	}
	return nil
}

// settled closes a record after an undo. What was staged goes, unless pods are on
// it already; a record of which nothing is left goes with it.
func (i *Installer) settled(ctx context.Context, r *journal.Record) error {
	if r.Next != nil {
		retire(r, r.Next)
	}
	r.Phase, r.Next, r.Files, r.Served = journal.Done, nil, nil, nil
	if err := i.journal.Write(r); err != nil {
		return err
	}
	if err := i.collect(ctx, r); err != nil {
		return err
	}
	if r.Now != nil || len(r.Old) > 0 {
		return i.journal.Write(r)
	}
	if err := i.unmake(r); err != nil {
		return err
	}
	if r.Failed > 0 {
		// The failures have to be counted, so the record stays.
		return i.journal.Write(r)
	}
	return i.journal.Forget(r.Type)
}

// drop removes the folders of a release that no other release has.
func (i *Installer) drop(r *journal.Record, gone *journal.Release) error {
	all := r.Old
	if r.Now != nil {
		all = append(slices.Clone(all), *r.Now)
	}
	dir, config := true, gone.Config != ""
	for _, other := range all {
		dir = dir && other.Dir != gone.Dir
		config = config && other.Config != gone.Config
	}
	if dir {
		if err := os.RemoveAll(i.host(gone.Dir)); err != nil {
			return fmt.Errorf("remove version %s: %w", gone.Version, err)
		}
	}
	if config {
		if err := os.RemoveAll(i.host(gone.Config)); err != nil {
			return fmt.Errorf("remove the configs of version %s: %w", gone.Version, err)
		}
	}
	return nil
}

// unmake removes the folder of a type and those that were made for it, as far as
// nobody has put anything there.
func (i *Installer) unmake(r *journal.Record) error {
	base := i.host(r.Base)
	left, err := os.ReadDir(base)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", r.Base, err)
	}
	for _, e := range left {
		if strings.HasPrefix(e.Name(), ".new-") || strings.HasPrefix(e.Name(), ".old-") {
			if err := os.RemoveAll(filepath.Join(base, e.Name())); err != nil {
				return fmt.Errorf("remove %s: %w", r.Base, err)
			}
		}
	}
	made := r.Made
	if !slices.Contains(made, r.Base) {
		made = append(made, r.Base)
	}
	for _, d := range slices.Backward(made) {
		// What is not empty is somebody else's by now, and stays.
		_ = os.Remove(i.host(d))
	}
	return nil
}

// collect removes old releases on which no pod is any more.
func (t *turn) collect(ctx context.Context) error {
	if err := t.describe(); err != nil {
		t.warnings = append(t.warnings, err.Error())
	}
	for _, in := range t.all {
		if err := t.Installer.collect(ctx, in.record); err != nil {
			// The new release works; what is left is tried again by the next turn.
			t.warnings = append(t.warnings, fmt.Sprintf("old versions of %s were not looked at: %v", in.record.Type, err))
		}
	}
	return nil
}

func (i *Installer) collect(ctx context.Context, r *journal.Record) error {
	if len(r.Old) == 0 {
		return nil
	}
	sandboxes, err := i.runtime.Sandboxes(ctx)
	if err != nil {
		return err
	}
	for n := 0; n < len(r.Old); {
		old := r.Old[n]
		if used(old, sandboxes) || i.runs(old.Dir) {
			n++
			continue
		}
		rest := *r
		rest.Old = slices.Delete(slices.Clone(r.Old), n, n+1)
		if err := i.drop(&rest, &old); err != nil {
			return err
		}
		if err := failpoint.Hit(collected); err != nil {
			return err
		}
		r.Old = rest.Old
		if err := i.journal.Write(r); err != nil {
			return err
		}
	}
	return nil
}

// used says whether a sandbox may be on a release: it is on one of its handlers,
// and from a time at which the release was the one that was served.
func used(old journal.Release, all []cri.Sandbox) bool {
	if old.Since.IsZero() {
		return false
	}
	for _, s := range all {
		if slices.Contains(old.Handlers, s.Handler) && !s.Created.Before(old.Since) && !s.Created.After(old.Until) {
			return true
		}
	}
	return false
}

// runs says whether a process that can be seen has its program in a folder.
func (i *Installer) runs(dir string) bool {
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return false
	}
	for _, l := range links {
		if path, err := os.Readlink(l); err == nil && strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
}
