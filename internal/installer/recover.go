package installer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/installer/cri"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/journal"
	"fairlead.run/internal/installer/process"
)

var (
	undoing   = failpoint.Register("install.undoing")
	undone    = failpoint.Register("install.undone")
	collected = failpoint.Register("install.collected")
)

// settle finishes what earlier installers were undoing, and asks the runtime. If
// that does not answer after changes that were cut off, they are undone.
func (i *Installer) settle(ctx context.Context) (cri.Seen, error) {
	all, err := i.journal.All()
	if err != nil {
		return cri.Seen{}, err
	}
	seen, failed := i.look(ctx)
	back := cutOff(all, errors.Is(failed, errdefs.ErrUnavailable))
	if len(back) == 0 {
		return seen, i.goneBack(failed)
	}
	i.log.Warn("undoing changes that were cut off", "types", types(back))
	err = i.undo(ctx, back, true)
	if err != nil && !errors.Is(err, errAside) && !errors.Is(err, journal.ErrUnwritten) {
		return seen, fmt.Errorf("undo a change of %s that was cut off: %w", types(back), err)
	}
	if err != nil {
		i.log.Error("a change that was cut off is undone, but not all is as it was", "err", err)
	}
	return i.look(ctx)
}

// goneBack adds what to do where containerd answers without the CRI, and a file of ours is why.
func (i *Installer) goneBack(failed error) error {
	if i.dist.Runtime != "containerd" || !cri.Absent(failed) {
		return failed
	}
	c, err := i.load()
	if err != nil {
		return failed
	}
	if f := c.GoneBack(); f != "" {
		return fmt.Errorf("%w; containerd 1.x takes %s for its whole table of the CRI: if this node has gone back from 2.x, take the import of that file out of %s and restart containerd", failed, f, c.Main)
	}
	return failed
}

// cutOff are the records that have to be undone before anything else, in the order
// of their changes: what was being undone, what may be why the runtime is down, and
// whatever was changed in one turn with either.
func cutOff(all []*journal.Record, down bool) []*journal.Record {
	first := func(r *journal.Record) bool {
		wrote := r.Phase == journal.Writing || r.Phase == journal.Restarting || r.Phase == journal.Removing
		return r.Phase == journal.RollingBack || down && wrote
	}
	turns := map[int]bool{}
	for _, r := range all {
		if r.Turn > 0 && first(r) {
			turns[r.Turn] = true
		}
	}
	var back []*journal.Record
	for _, r := range all {
		if first(r) || r.InFlight() && turns[r.Turn] {
			back = append(back, r)
		}
	}
	slices.SortStableFunc(back, func(a, b *journal.Record) int {
		return cmp.Or(cmp.Compare(a.Turn, b.Turn), cmp.Compare(a.Place, b.Place))
	})
	return back
}

// types are those of records, for people.
func types(all []*journal.Record) string {
	var names []string
	for _, r := range all {
		names = append(names, r.Type)
	}
	return strings.Join(names, " and ")
}

// nextTurn is the number of a turn that begins now. What it writes builds on the
// files of turns that were cut off, which therefore can no longer be put back whole.
func (i *Installer) nextTurn() (int, error) {
	all, err := i.journal.All()
	if err != nil {
		return 0, err
	}
	last := 0
	for _, r := range all {
		last = max(last, r.Turn)
		if len(r.Files) == 0 {
			continue
		}
		for n := range r.Files {
			r.Files[n].Shared = true
		}
		if err := i.journal.Write(r); err != nil {
			return 0, err
		}
	}
	return last + 1, nil
}

// begin notes what the runtime was before a turn. A record that was cut off keeps
// what it was before that, and learns of handlers that others have brought since.
func begin(r *journal.Record, turn, place int, seen cri.Seen) error {
	r.Turn, r.Place = turn, place
	own := r.Owned()
	for _, h := range seen.Handlers {
		if len(r.Before) == 0 || !slices.Contains(r.Served, h) && !slices.Contains(own, h) {
			r.Served = append(r.Served, h)
		}
	}
	var err error
	r.Before, err = json.Marshal(seen)
	return err
}

// fail undoes what a turn has done, notes the failure, and returns what is to be
// reported.
func (t *turn) fail(ctx context.Context, cause error) error {
	t.log.Error("the change failed and is undone", "err", cause)
	var records []*journal.Record
	for _, in := range t.all {
		r := in.record
		if r.Phase == journal.Done {
			continue
		}
		records = append(records, r)
		if errors.Is(cause, context.Canceled) || errors.Is(ctx.Err(), context.Canceled) {
			continue // somebody has ended it, which says nothing of the payload
		}
		if r.FailedHash != in.job.release.Hash {
			r.Failed, r.FailedHash = 0, in.job.release.Hash
		}
		r.Failed++
		r.LastError, r.LastReason = cause.Error(), string(fault.Of(cause))
		r.Retry = time.Now().Add(backoff(r.Failed))
	}
	if len(records) == 0 {
		return nil // it failed after the last word was written
	}
	t.putBack(ctx, records)
	return cause
}

// putBack undoes what a turn has written, and keeps in back what came of it.
func (t *turn) putBack(ctx context.Context, records []*journal.Record) {
	// It has time of its own: the reason may be that there was none left.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*(t.options.Wait+2*time.Minute))
	defer cancel()
	t.undone, t.back = true, t.undo(ctx, records, t.restarted)
	if errors.Is(t.back, errdefs.ErrUnavailable) && t.others(records) {
		// It may be of a turn that was cut off before this one that it does not start.
		_, t.back = t.settle(ctx)
	}
}

// failure is how a turn ended that failed, and what is told of that.
func (t *turn) failure(err error) (payload.State, string) {
	state, text := payload.Failed, err.Error()
	switch {
	case !t.changed:
		state = payload.Refused
	case !t.undone:
	case t.back == nil:
		state = payload.RolledBack
	case errors.Is(t.back, journal.ErrUnwritten):
		state = payload.RolledBack
		text += "; all is as it was before, which the next installer finds out for itself: " + t.back.Error()
	case errors.Is(t.back, errAside):
		text += "; " + t.back.Error()
	default:
		text += "; and it could not be undone: " + t.back.Error()
	}
	return state, strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}

// others says whether changes other than these are in flight.
func (i *Installer) others(records []*journal.Record) bool {
	all, err := i.journal.All()
	return err == nil && slices.ContainsFunc(all, func(r *journal.Record) bool {
		return r.InFlight() && !slices.ContainsFunc(records, func(x *journal.Record) bool { return x.Type == r.Type })
	})
}

// backoff is how long to wait after a number of failures.
func backoff(failed int) time.Duration {
	return min(30*time.Second<<min(failed-1, 10), time.Hour)
}

// heldOff says whether what has failed is not to be tried yet. A time that is further away
// than any that is set after so many failures is of a clock that was set back since.
func heldOff(r *journal.Record) bool {
	left := time.Until(r.Retry)
	return left > 0 && left <= backoff(r.Failed)
}

// errAside says that all of the installer's is undone and the runtime works, but not
// as before: its configuration was changed by somebody before it was restarted.
var errAside = errors.New("what the installer has changed is undone, and the runtime works, but not as before")

// undo puts the configuration back as it was before the records' changes, which are
// given in their order, restarts the runtime once if it may have read any of them,
// and sees that all handlers of before are served. An error that wraps errAside says
// that nothing is left to be done, and one that wraps journal.ErrUnwritten alone that all
// of that was done and could not be noted, as on a disk that is full.
func (i *Installer) undo(ctx context.Context, records []*journal.Record, restarted bool) error {
	for _, r := range records {
		r.Phase = journal.RollingBack
		if err := i.journal.Write(r); err != nil {
			i.log.Error("a change is undone, which cannot be noted", "err", err)
		}
	}
	if err := failpoint.Hit(undoing); err != nil {
		return err
	}
	seen, silent := i.runtime.Probe(ctx)
	for _, r := range slices.Backward(records) {
		if err := i.restore(known(seen, silent, r), r); err != nil {
			return err
		}
	}
	whole := func(now cri.Seen) error { return i.whole(now, records) }
	var aside error
	if restarted || i.await(ctx, whole) != nil {
		if err := i.again(ctx, seen); err != nil {
			return err
		}
		if err := i.await(ctx, whole); err != nil {
			if now, failed := i.runtime.Probe(ctx); failed != nil || now.NotReady != "" {
				return err
			}
			aside = fmt.Errorf("%w: %w; look who has changed its configuration", errAside, err)
		}
	}
	if err := failpoint.Hit(undone); err != nil {
		return err
	}
	var unwritten error
	for _, r := range records {
		err := i.settled(ctx, r)
		if err != nil && !errors.Is(err, journal.ErrUnwritten) {
			return err
		}
		unwritten = cmp.Or(unwritten, err)
	}
	return cmp.Or(aside, unwritten)
}

// known is what the runtime says of itself, or what it said before the change if it
// is silent: an edit by others cannot be worked around without its version.
func known(seen cri.Seen, silent error, r *journal.Record) cri.Seen {
	var before cri.Seen
	if silent == nil || json.Unmarshal(r.Before, &before) != nil {
		return seen
	}
	return before
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
		i.log.Error("the runtime is restarted, which cannot be noted", "err", err)
	}
	i.log.Warn("restarting the runtime with its old configuration", "how", i.restarter.String())
	if err := i.restarter.Restart(ctx); err != nil {
		return fault.New(payload.RestartFailed, "%w", err)
	}
	return nil
}

// whole says which handler of before is not served as it was.
func (i *Installer) whole(now cri.Seen, records []*journal.Record) error {
	var gone []string // with the changes
	for _, r := range records {
		gone = append(gone, r.Given()...)
	}
	for _, r := range records {
		if err := kept(now, r.Served, gone); err != nil {
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
		r.Retire(r.Next)
	}
	gone := r.Given()
	r.Settle()
	if err := i.journal.Write(r); err != nil {
		i.log.Error("a change is undone, which cannot be noted yet", "err", err) // what goes now may make room
	}
	if err := i.collect(ctx, r); err != nil && !errors.Is(err, journal.ErrUnwritten) {
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
	if err := i.handOver(r, gone); err != nil {
		return err
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
	return process.AnyFrom(dir, filepath.Join("/", strings.TrimPrefix(i.real(dir), filepath.Clean(i.options.Root))))
}
