package installer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/installer/containerd"
	"fairlead.run/internal/installer/cri"
	"fairlead.run/internal/installer/crio"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/files"
	"fairlead.run/internal/installer/journal"
	"fairlead.run/internal/installer/process"
	"fairlead.run/internal/installer/profile"
	"fairlead.run/internal/installer/stage"
)

var (
	locked     = failpoint.Register("install.locked")
	intended   = failpoint.Register("install.intended")
	configured = failpoint.Register("install.configured")
	restarting = failpoint.Register("install.restarting")
	restarted  = failpoint.Register("install.restarted")
	verified   = failpoint.Register("install.verified")
	committed  = failpoint.Register("install.committed")
)

// install is one type in a change that may be of several.
type install struct {
	job     *job
	record  *journal.Record
	changes []files.Change
}

// Install brings all sources to the node, with one restart. They succeed or fail
// together. There is one result for each, in their order.
func (i *Installer) Install(ctx context.Context, sources []Source) []payload.InstallResult {
	t := &turn{Installer: i}
	results := make([]payload.InstallResult, len(sources))
	err := t.run(ctx, sources)
	for n, s := range sources {
		results[n] = t.result(n, s, err)
		results[n].Served = i.serving(ctx, results[n].Type)
	}
	return results
}

// turn is one call of Install.
type turn struct {
	*Installer
	all       []*install
	number    int      // in the journal
	seen      cri.Seen // before the change
	restarted bool
	changed   bool // something was written, so that a failure has to be undone
	undone    bool // that was tried, and back is why it is not as before
	back      error
	warnings  []string
}

func (t *turn) run(ctx context.Context, sources []Source) error {
	if err := profile.CheckBinaryPath(t.binaryPath, t.system); err != nil {
		return err
	}
	unlock, err := t.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := failpoint.Hit(locked); err != nil {
		return err
	}
	if t.seen, err = t.settle(ctx); err != nil {
		return err
	}
	if err := t.used(); err != nil {
		return err
	}
	if t.number, err = t.nextTurn(); err != nil {
		return err
	}
	for _, s := range sources {
		if err := t.preflight(s); err != nil {
			return err
		}
	}
	if err := t.droppedInUse(ctx); err != nil {
		return err
	}
	if t.nothingToDo() {
		return errors.Join(t.checks(ctx), t.collect(ctx))
	}
	if err := errors.Join(t.pending(t.seen), t.reloadable(t.seen, t.all)); err != nil {
		return err
	}
	if err := t.describe(); err != nil { // for who finds the runtime down, after a kill
		return err
	}
	if err := t.change(ctx); err != nil {
		return t.fail(ctx, err)
	}
	return t.collect(ctx)
}

// used refuses a runtime that the node's kubelet does not use, as nobody would get what is
// installed. Where the user has named that runtime it is meant, and only told.
func (t *turn) used() error {
	text := t.dist.Unused(t.root(), t.kubelet)
	switch {
	case text == "":
		return nil
	case !t.named:
		return fault.New(payload.UnsupportedNode, "%s", text)
	}
	t.warnings = append(t.warnings, text)
	return nil
}

// preflight reads a source and says why it cannot be installed, before anything is
// touched.
func (t *turn) preflight(s Source) error {
	j, err := t.prepare(s, systemdCgroup(t.seen))
	if err != nil {
		return err
	}
	for _, other := range t.all {
		if other.job.payload.Type == j.payload.Type {
			return fault.New(payload.ConfigurationProblem, "two payloads of type %s were given", j.payload.Type)
		}
	}
	r, err := t.journal.Read(j.payload.Type)
	if err != nil {
		return err
	}
	t.all = append(t.all, &install{job: j, record: r})
	if base := filepath.Dir(j.release.Dir); r.Base != "" && r.Base != base {
		return fault.New(payload.ConfigurationProblem, "%s is installed in %s; uninstall it there before it goes to %s", r.Type, r.Base, base)
	}
	if r.Phase == journal.Done && r.FailedHash == j.release.Hash && heldOff(r) {
		return fault.New(payload.Reason(r.LastReason), "the last %d attempts failed, and the next one is at %s: %s", r.Failed, r.Retry.UTC().Format(time.RFC3339), r.LastError)
	}
	for _, d := range j.payload.Devices {
		if _, err := os.Stat(t.real(d)); err != nil {
			return fault.New(payload.DeviceMissing, "%s needs %s, which this node does not have; choose machines that have it", j.payload.Type, d)
		}
	}
	if err := j.stager.Room(); err != nil {
		return err
	}
	_, err = t.plan(t.seen, r, j)
	return err
}

// droppedInUse refuses a payload that no longer has a handler on which pods are.
func (t *turn) droppedInUse(ctx context.Context) error {
	for _, in := range t.all {
		if err := t.runtime.InUse(ctx, dropped(in)); err != nil {
			return err
		}
	}
	return nil
}

// dropped are handlers that a type has had and no longer has with its job.
func dropped(in *install) []string {
	return slices.DeleteFunc(in.record.Owned(), func(h string) bool { return slices.Contains(in.job.release.Handlers, h) })
}

// unused is InUse after a restart: whoever does not answer then is asked again for a while.
func (i *Installer) unused(ctx context.Context, handlers []string) error {
	if len(handlers) == 0 {
		return nil
	}
	var pods error
	err := i.await(ctx, func(cri.Seen) error {
		pods = i.runtime.InUse(ctx, handlers)
		if pods != nil && fault.Of(pods) == payload.InUse {
			return nil
		}
		return pods
	})
	if err != nil {
		return err
	}
	return pods
}

// nothingToDo says whether all is on the node and served already.
func (t *turn) nothingToDo() bool {
	for _, in := range t.all {
		if in.record.Phase != journal.Done || in.record.Now == nil || in.record.Now.Hash != in.job.release.Hash {
			return false
		}
		if t.drifted(t.seen, in) != nil {
			return false
		}
	}
	return true
}

// drifted says what of an installed type is not as it was left.
func (i *Installer) drifted(seen cri.Seen, in *install) error {
	if err := in.job.stager.Check(true); err != nil {
		return err
	}
	if err := stage.CheckConfigs(i.host(in.job.release.Config), in.job.configs); err != nil {
		return err
	}
	changes, err := i.plan(seen, in.record, in.job)
	if err != nil {
		return err
	}
	if len(changes) > 0 {
		return fmt.Errorf("%s was changed", changes[0].Path)
	}
	return served(seen, in.job)
}

// change stages, writes and restarts. What it has done when it fails is in the
// records.
func (t *turn) change(ctx context.Context) error {
	for place, in := range t.all {
		if err := t.stage(place, in); err != nil {
			return err
		}
	}
	for _, in := range t.all {
		if err := t.hook(in); err != nil {
			return err
		}
	}
	warning, err := t.dump(ctx)
	if err != nil {
		return err
	}
	if warning != "" {
		t.warnings = append(t.warnings, warning)
	}
	if t.seen.Loaded == nil {
		t.warnings = append(t.warnings, t.seen.Name+" does not show the configuration that it runs with, so that of handlers only the names were compared")
	}
	if err := t.phase(journal.Restarting); err != nil {
		return err
	}
	if err := t.restart(ctx); err != nil {
		return err
	}
	if err := t.await(ctx, t.arrived); err != nil {
		return err
	}
	for _, in := range t.all { // a pod may have come in the last moment
		if err := t.unused(ctx, dropped(in)); err != nil {
			return err
		}
	}
	if err := t.checks(ctx); err != nil {
		return err
	}
	if err := failpoint.Hit(verified); err != nil {
		return err
	}
	return t.commit()
}

// stage puts the payload of one type on the disk.
func (t *turn) stage(place int, in *install) error {
	r := in.record
	r.Phase, r.Base = journal.Staging, filepath.Dir(in.job.release.Dir)
	next := in.job.release
	if r.Next != nil && r.Next.Hash != next.Hash {
		r.Retire(r.Next) // of an attempt that was cut off; pods may be on it
	}
	for _, same := range []*journal.Release{r.Now, r.Next} {
		if same != nil && same.Hash == next.Hash {
			next.Since = same.Since
		}
	}
	if err := begin(r, t.number, place, t.seen); err != nil {
		return err
	}
	r.Next = &next
	if err := t.missing(r, r.Base); err != nil {
		return err
	}
	if err := t.journal.Write(r); err != nil {
		return err
	}
	t.changed = true
	if err := failpoint.Hit(intended); err != nil {
		return err
	}
	if err := t.node().MkdirAll(r.Base); err != nil {
		return err
	}
	if err := in.job.stager.Place(); err != nil {
		return err
	}
	if len(in.job.configs) == 0 {
		return nil
	}
	if err := stage.Configs(t.host(in.job.release.Config), in.job.configs); err != nil {
		return err
	}
	return failpoint.Hit(configured)
}

// hook writes the handlers of one type into the runtime's configuration. It is
// planned anew: another type may have changed the same file a moment ago.
func (t *turn) hook(in *install) error {
	changes, err := t.plan(t.seen, in.record, in.job)
	if err != nil {
		return err
	}
	in.changes = changes
	in.record.Phase = journal.Writing
	if in.record.Next.Since.IsZero() {
		in.record.Next.Since = time.Now() // the runtime may be started again by others
	}
	return t.write(in.record, changes)
}

// phase says that the releases are about to be served.
func (t *turn) phase(p journal.Phase) error {
	for _, in := range t.all {
		in.record.Phase = p
		if err := t.journal.Write(in.record); err != nil {
			return err
		}
	}
	return nil
}

// restart waits until it may, and restarts. A runtime that has read what was
// written already, as after a kill at the last moment, is left alone.
func (t *turn) restart(ctx context.Context) error {
	if now, err := t.runtime.Probe(ctx); err == nil && t.arrived(now) == nil && t.read() {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("restart the runtime: %w", err)
	}
	if err := t.rest(ctx); err != nil {
		return err
	}
	if err := failpoint.Hit(restarting); err != nil {
		return err
	}
	if err := t.journal.NoteRestart(time.Now()); err != nil {
		return err
	}
	t.log.Info("restarting the runtime", "how", t.restarter.String())
	t.restarted = true
	if err := t.restarter.Restart(ctx); err != nil {
		return fault.New(payload.RestartFailed, "%w", err)
	}
	return failpoint.Hit(restarted)
}

// read says whether the runtime began after the last write, and so has read it.
func (t *turn) read() bool {
	var last time.Time
	for _, in := range t.all {
		for _, f := range in.record.Files {
			info, err := os.Stat(t.real(f.Path))
			if err != nil {
				return false
			}
			last = later(last, info.ModTime())
		}
	}
	if last.IsZero() {
		return true // nothing was written
	}
	pid, err := t.runtime.PID()
	if err != nil {
		return false
	}
	began, err := process.Started(pid)
	return err == nil && began.After(last.Add(margin))
}

// margin is how exactly the kernel tells when a process began, and more.
const margin = 50 * time.Millisecond

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// quietWait is how long a restart waits for pods that are being started.
const quietWait = 10 * time.Second

// rest waits until the last restart is long enough ago, and then for pods that are just
// being started.
func (i *Installer) rest(ctx context.Context) error {
	// A restart in the future is of a clock that was set back since.
	if wait := min(time.Until(i.lastRestart().Add(i.options.Interval)), i.options.Interval); wait > 0 {
		i.log.Info("waiting, as the runtime was restarted a moment ago", "for", wait.Round(time.Second))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	short, cancel := context.WithTimeout(ctx, quietWait)
	defer cancel()
	if n := i.runtime.Quiet(short); n > 0 {
		i.log.Warn("the runtime is restarted while pods are being started, which the kubelet has to try again", "pods and containers", n)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("wait until the runtime may be restarted: %w", err)
	}
	return nil
}

// arrived says what is still missing of all that has to be served.
func (t *turn) arrived(now cri.Seen) error {
	for _, in := range t.all {
		if err := kept(now, in.record.Served, dropped(in)); err != nil {
			return err
		}
		if err := served(now, in.job); err != nil {
			return err
		}
	}
	return nil
}

// kept says which handlers are no longer served, of those that were and are not
// given up.
func kept(now cri.Seen, before, dropped []string) error {
	for _, h := range before {
		if !slices.Contains(now.Handlers, h) && !slices.Contains(dropped, h) {
			return fault.New(payload.HandlerNotServed, "handler %s was served before, and is not any more", h)
		}
	}
	return nil
}

// served says which handlers of a job are not served with the settings that they
// are to have.
func served(now cri.Seen, j *job) error {
	for _, h := range j.release.Handlers {
		if !slices.Contains(now.Handlers, h) {
			return fault.New(payload.HandlerNotServed, "handler %s is not served", h)
		}
	}
	return errors.Join(containerd.Served(now.Loaded, j.containerd), crio.Served(now.Loaded, j.crio))
}

// poll is how often the runtime is asked while it comes back.
const poll = 250 * time.Millisecond

// await asks the runtime until it is ready and done says that it is.
func (i *Installer) await(parent context.Context, done func(cri.Seen) error) error {
	ctx, cancel := context.WithTimeout(parent, i.options.Wait)
	defer cancel()
	var last error
	for {
		now, err := i.runtime.Probe(ctx)
		if err == nil && now.NotReady != "" {
			err = fault.New(payload.RuntimeUnavailable, "%s", now.NotReady)
		}
		if err == nil {
			if err = done(now); err == nil {
				return nil
			}
		}
		if last == nil || ctx.Err() == nil { // or it says no more than that the time is up
			last = err
		}
		select {
		case <-ctx.Done():
			if ended := parent.Err(); errors.Is(ended, context.Canceled) {
				return fmt.Errorf("wait for the runtime: %w", ended)
			}
			return fmt.Errorf("after %v: %w", i.options.Wait, last)
		case <-time.After(poll):
		}
	}
}

// commit makes the new releases those that are installed.
func (t *turn) commit() error {
	for _, in := range t.all {
		r := *in.record
		if r.Now != nil && r.Now.Hash != r.Next.Hash {
			r.Retire(r.Now)
		}
		r.Now = r.Next
		r.Settle()
		r.Failures = journal.Failures{}
		if err := t.journal.Write(&r); err != nil {
			return err
		}
		*in.record = r
	}
	return failpoint.Hit(committed)
}

// result is what is told of one source.
func (t *turn) result(n int, s Source, err error) payload.InstallResult {
	r := payload.InstallResult{
		APIVersion: payload.APIVersion, Kind: payload.KindResult, State: payload.Installed,
		Restarted: t.restarted, Warnings: append(t.hints(), t.warnings...),
	}
	if t.seen.Name != "" {
		r.Runtime = t.seen.Name + " " + t.seen.Version
	}
	if n < len(t.all) {
		j := t.all[n].job
		r.Type, r.Version, r.Hash = j.payload.Type, j.payload.Version, j.release.Hash
		r.Handlers = j.release.Handlers
	} else if p, _, err := stage.ReadManifest(s.Dir); err == nil {
		r.Type, r.Version = p.Type, p.Version
	}
	if err == nil {
		return r
	}
	r.Handlers, r.Reason = nil, fault.Of(err)
	r.State, r.Message = t.failure(err)
	return r
}

// maxText bounds a message, so that a result fits into what a kubelet keeps.
const maxText = 2048

// hints are what of the kubelet's flags does not fit.
func (i *Installer) hints() []string {
	if i.kubelet == nil {
		return nil
	}
	return i.kubelet.Problems()
}
