package installer

import (
	"context"
	"time"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/journal"
	"fairlead.run/internal/installer/monitor"
	"fairlead.run/internal/installer/stage"
)

// Watch pauses of a Watcher.
const (
	lookEvery = 10 * time.Second
	deepEvery = time.Hour
	quiet     = 10 * time.Minute
)

// Watcher keeps what was installed as it is.
type Watcher struct {
	*Installer
	// Sources are those that Install has installed.
	Sources []Source
	// Every is how often it looks; 10 s if it is 0.
	Every time.Duration
	// Ready is told whether all is as it was installed.
	Ready func(bool) error
	// Tell is told, if it is not nil, what the node's monitor has done.
	Tell func(string) error
}

// Run looks after the node until the context ends. Whatever was changed is put
// back, ever later if somebody keeps changing it. It returns the results of a
// repair that failed.
func (w *Watcher) Run(ctx context.Context) []payload.InstallResult {
	every := w.Every
	if every == 0 {
		every = lookEvery
	}
	repairs, last, deep, told := 0, time.Time{}, time.Now(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
		told = w.tell(told)
		full := time.Since(deep) > deepEvery
		why := w.look(ctx, full)
		if full {
			deep = time.Now()
		}
		if why == nil {
			w.sweep(ctx)
			if time.Since(last) > quiet {
				repairs = 0
			}
			continue
		}
		w.log.Warn("what was installed has changed", "what", why, "repairs", repairs)
		if wait := time.Until(last.Add(fought(repairs))); repairs > 0 && wait > 0 {
			w.log.Error("somebody keeps changing what was installed; the next repair waits", "for", wait.Round(time.Second))
			if err := w.Ready(false); err != nil {
				w.log.Error("the readiness could not be told", "err", err)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(wait):
			}
		}
		repairs++
		last = time.Now()
		results := w.Install(ctx, w.Sources)
		for _, r := range results {
			if r.State != payload.Installed && ctx.Err() == nil {
				return results
			}
		}
		if err := w.Ready(true); err != nil {
			w.log.Error("the readiness could not be told", "err", err)
		}
	}
}

// tell passes on what the monitor has done since a time, and returns the time of the
// last of it.
func (w *Watcher) tell(since time.Time) time.Time {
	all, err := monitor.Read(w.Events())
	if err != nil {
		w.log.Error("what the monitor has done is not known", "err", err)
	}
	for _, e := range all {
		if !e.Time.After(since) || w.Tell == nil {
			continue
		}
		w.log.Warn("the monitor has restarted the runtime", "event", e.String())
		if err := w.Tell(e.String()); err != nil {
			w.log.Error("what the monitor has done could not be told", "err", err)
			return since // it is tried again
		}
		since = e.Time
	}
	return since
}

// sweepWait is how long a look waits for other installers before it leaves old versions
// to the next one.
const sweepWait = time.Second

// sweep removes what upgrades have left, once no pod is on it any more.
func (w *Watcher) sweep(ctx context.Context) {
	for _, s := range w.Sources {
		kind, err := TypeOf(s.Dir)
		if err == nil {
			err = w.sweepType(ctx, kind)
		}
		if err != nil && ctx.Err() == nil {
			w.log.Warn("old versions were not looked at; the next look tries again", "type", kind, "err", err)
		}
	}
}

func (i *Installer) sweepType(ctx context.Context, kind string) error {
	r, err := i.journal.Read(kind)
	if err != nil || len(r.Old) == 0 {
		return err
	}
	short, cancel := context.WithTimeout(ctx, sweepWait)
	defer cancel()
	unlock, err := i.lock(short)
	if fault.Of(err) == payload.Busy {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	if r, err = i.journal.Read(kind); err != nil || r.Phase != journal.Done {
		return err
	}
	return i.collect(ctx, r)
}

// fought is how long to wait before the next repair: the more of them, the longer.
func fought(repairs int) time.Duration {
	return min(time.Minute<<min(max(repairs, 1)-1, 10), time.Hour)
}

// look says what has changed. A runtime that does not answer is not a change: the
// monitor looks after that.
func (w *Watcher) look(ctx context.Context, deep bool) error {
	seen, err := w.runtime.Probe(ctx)
	if err != nil {
		return nil
	}
	for _, s := range w.Sources {
		j, err := w.prepare(s, systemdCgroup(seen))
		if err != nil {
			return err
		}
		r, err := w.journal.Read(j.payload.Type)
		if err != nil {
			return err
		}
		if err := j.stager.Check(deep); err != nil {
			return err
		}
		if err := stage.CheckConfigs(w.host(j.release.Config), j.configs); err != nil {
			return err
		}
		changes, err := w.plan(seen, r, j)
		if err != nil {
			return err
		}
		if len(changes) > 0 {
			return fault.New(payload.Conflict, "%s was changed", changes[0].Path)
		}
		if err := served(seen, j); err != nil {
			return err
		}
	}
	return nil
}
