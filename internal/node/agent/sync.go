package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/errtext"
	"fairlead.run/internal/node/inbox"
	"fairlead.run/internal/node/ledger"
	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/removal"
	"fairlead.run/internal/node/source"
	"fairlead.run/internal/node/status"
	"fairlead.run/internal/node/volume"
	"fairlead.run/internal/node/volume/csi"
)

// sync makes the pod what it should be, as far as that is possible now, and tells how
// it is. It says when to think again if nothing happens; zero for never.
func (w *worker) sync(ctx context.Context) (again time.Time, err error) {
	for {
		step, l := w.in.Open(ctx)
		w.take(l)
		if l.Unseen {
			if err := w.view.Look(step); err != nil {
				w.in.Mark()
				return again, err
			}
		}
		if err := w.prepare(step); err != nil {
			w.tell(plan.Plan{Phase: corev1.PodPending})
			return again, err
		}
		if w.leftOver() {
			return again, w.clear(step)
		}
		p := w.plan()
		w.tell(p)
		if len(p.Actions) == 0 {
			return w.settle(step, p)
		}
		if err := w.perform(step, p); err != nil && !w.hastened(step, ctx) {
			w.in.Mark()
			w.tell(w.plan())
			return again, err
		}
		w.in.Mark() // whatever came of it
	}
}

// hastened says that a step was cut off by something new, not by the agent's end.
func (w *worker) hastened(step, ctx context.Context) bool {
	return step.Err() != nil && ctx.Err() == nil
}

// take takes over what the inbox had.
func (w *worker) take(l inbox.Letter) {
	if w.given != l.Pod {
		w.given = l.Pod
		w.pod = w.counted(l.Pod)
		w.spec.Pod = w.pod
		clear(w.holds) // what could not be started may be another thing now
	}
	if l.Ending != nil && w.ending == nil {
		w.view.Leave()
	}
	w.ending = l.Ending
	if l.Again {
		clear(w.holds)
	}
	if l.Anew && w.stray {
		w.refused, w.stray = nil, false
		w.shown.Set(nil, nil)
	}
	if l.Ending != nil && l.Ending.Refusal != nil {
		w.refused, w.stray = l.Ending.Refusal, l.Ending.Refusal.Again
	}
}

// plan is what is to be done now. What could not be started waits for its time.
func (w *worker) plan() plan.Plan {
	in := w.input()
	return w.holds.Apply(plan.Next(in), in.Now)
}

func (w *worker) input() plan.Input {
	in := plan.Input{
		Pod: w.pod, Observed: w.view.Observed(), Now: time.Now(), Began: w.record.Accepted, Ran: w.record.Ran,
		Hash: func(ct *corev1.Container) string { return podspec.Hash(w.pod, ct) }, LongestPause: w.a.cfg.Node.LongestPause,
	}
	_, told := w.shown.Get()
	status.Remember(in.Containers, w.pod, cmp.Or(told, &w.pod.Status))
	switch {
	case w.ending != nil:
		in.Ending = w.ending.Why
	case w.refused != nil:
		in.Ending = w.refused.Message
	case w.record.Ended != nil:
		in.Ending = "it has ended"
	}
	return in
}

// prepare brings the pod to where it can be run. Nothing of it is repeated, and a pod
// that is to end needs none of it.
func (w *worker) prepare(ctx context.Context) error {
	if w.stage == fresh {
		if err := w.accept(); err != nil {
			return err
		}
	}
	w.intend()
	if err := w.overruled(); err != nil {
		return err
	}
	if w.ending != nil || w.refused != nil || w.record.Ended != nil || w.late() {
		return nil
	}
	if w.stage == accepted {
		if err := w.enter(); err != nil || w.refused != nil {
			return err
		}
		if err := w.findPlace(ctx); err != nil || w.refused != nil {
			return err
		}
	}
	if w.stage == placed {
		if err := w.house(ctx); err != nil {
			if w.view.Box == nil {
				return err
			}
			w.resizing.loose = true // it runs, and its containers may have to give something back first
		}
		if err := w.mount(ctx); err != nil {
			if w.view.Box == nil && errors.Is(err, csi.ErrNodeFull) {
				w.refuseFull(err)
				return nil
			}
			return w.told("FailedMount", err)
		}
	}
	return w.grant(ctx)
}

// mount makes the volumes of the pod. What it takes to give their files to its group has no limit
// but the pod's own.
func (w *worker) mount(ctx context.Context) error {
	if by := plan.Deadline(w.pod, w.record.Accepted); !by.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, by)
		defer cancel()
	}
	around := w.a.cfg.Around
	around.Limit, around.Runs, around.Progress = callTimeout, w.view.Box != nil, w.progress
	var set *volume.Set
	var err error
	w.slowly(func() { set, err = volume.Prepare(ctx, w.spec, w.dirs, around) })
	if err != nil {
		return err
	}
	if err := set.Refused(); err != nil {
		w.event(corev1.EventTypeWarning, "VolumeGroupIncomplete", err.Error())
	}
	for _, message := range set.Shared() {
		w.event(corev1.EventTypeWarning, "AlreadyMountedVolume", message)
	}
	w.volumes, w.stage, w.spec.Groups = set, prepared, set.Groups()
	w.measured.Store(set)
	return nil
}

// refuseFull ends a pod for whose volumes the node has no room, so that another node gets its
// successor.
func (w *worker) refuseFull(err error) {
	w.refused = &Refusal{Reason: "VolumeAttachmentLimitExceeded", Message: "the node takes no more volumes of a CSI driver of the pod; make the pod anew, so that it can go to another node: " + errtext.Of(err), Rejected: true}
	w.event(corev1.EventTypeWarning, w.refused.Reason, w.refused.Message)
}

// progress tells why the pod does not start yet.
func (w *worker) progress(dir string, files int) {
	w.event(corev1.EventTypeWarning, "VolumePermissionChangeInProgress", fmt.Sprintf(
		"Setting volume ownership for %s takes long: %d files so far. The pod starts when it is done; with fsGroupChangePolicy: OnRootMismatch it is not done again for each pod", dir, files))
}

// late says that the pod has used its activeDeadlineSeconds up, which count also while it
// cannot be prepared.
func (w *worker) late() bool {
	by := plan.Deadline(w.pod, w.record.Accepted)
	return !by.IsZero() && !time.Now().Before(by)
}

// accept writes the pod into the ledger, or finds it there.
func (w *worker) accept() error {
	r, found, err := w.a.ledger.Read(w.uid)
	if err != nil { // it cannot be repaired, and a pod must not be lost for it
		w.event(corev1.EventTypeWarning, "RecordLost", "The pod is taken for one that has just come. When it came before, and whether it has ended, is not known any more; see whether that disk is full or broken: "+err.Error())
	}
	if !found {
		r = ledger.Record{Namespace: w.pod.Namespace, Name: w.pod.Name, Accepted: time.Now().Round(0), Agent: w.a.cfg.Name, Source: w.pod.Annotations[source.SourceAnnotation]}
		if t := w.pod.Status.StartTime; t != nil {
			r.Accepted = t.Time
		}
		if status.Terminal(w.pod.Status.Phase) {
			r.Ended = w.pod.Status.DeepCopy()
		}
		r.Ran = plan.Policy(w.pod) == corev1.RestartPolicyNever && status.Began(&w.pod.Status)
		if w.guest.Admitted() {
			allocated := capacity.AllocationOf(w.given)
			r.Allocated = &allocated
		}
		if w.ending == nil {
			if err := w.a.ledger.Write(w.uid, r); err != nil {
				return err
			}
		}
	}
	w.record, w.refused, w.stage = r, r.Refusal, accepted
	w.pod = w.counted(w.given)
	w.spec.Pod = w.pod
	if r.Ended != nil {
		w.shown.Find(w.pod, r.Ended)
	}
	return nil
}

// overruled takes over that a pod has ended of which the API server says so, though nobody
// here has: whoever gives up a node, or cleans up, may have written that.
func (w *worker) overruled() error {
	if w.record.Ended != nil || !status.Terminal(w.given.Status.Phase) {
		return nil
	}
	if _, told := w.shown.Get(); told != nil && status.Terminal(told.Phase) {
		return nil // it has that from here
	}
	r := w.record
	r.Ended = w.given.Status.DeepCopy()
	if err := w.a.ledger.Write(w.uid, r); err != nil {
		return err
	}
	w.record = r
	w.shown.Set(w.pod, r.Ended)
	w.guest.Leave() // who has sent it counts it as ended, though it still runs
	return nil
}

// settle is a pod of which all is done that can be done now.
func (w *worker) settle(ctx context.Context, p plan.Plan) (again time.Time, err error) {
	if w.ending != nil && w.ending.Forget {
		return again, w.clear(ctx)
	}
	if w.ending != nil && w.ending.Resume {
		return again, w.resume(ctx)
	}
	if p.Phase == corev1.PodSucceeded || p.Phase == corev1.PodFailed || w.refused != nil {
		if p.Lost && w.record.Ended == nil {
			w.event(corev1.EventTypeWarning, "SandboxLost", "The sandbox of the pod is gone, as after a reboot, and its restartPolicy is Never, so that it has failed and is not run a second time; make it anew if it is to run, or let it have another restartPolicy")
		}
		return again, w.retire(ctx)
	}
	if err := w.tidy(ctx); err != nil {
		return again, err
	}
	noted := w.noteDone() // the disk may be full: all else goes on
	if err := w.tighten(ctx, p); err != nil {
		return again, err
	}
	if w.stage == prepared && w.volumes != nil {
		next, err := w.refresh(ctx)
		if err != nil {
			return again, err
		}
		again = next
	}
	if again.IsZero() || !p.Again.IsZero() && p.Again.Before(again) {
		again = p.Again
	}
	return again, noted
}

// refresh brings volumes up to date with the objects that they come from, and says
// when to do so again.
func (w *worker) refresh(ctx context.Context) (time.Time, error) {
	var again time.Time
	var err error
	w.slowly(func() { _, again, err = w.volumes.Update(ctx) })
	if err != nil {
		if err = w.told("FailedMount", err); again.IsZero() {
			return again, err
		}
	}
	return again, nil
}

// retire remembers how a pod has ended, and gives back its volumes, and its cgroup. Who waits
// for its end finds the disk free that it has used.
func (w *worker) retire(ctx context.Context) error {
	err := w.remember()
	var left error
	if !w.stray && !w.vacant { // also if its end cannot be written down: the disk may be full of this
		w.measured.Store(nil)
		left = errors.Join(volume.Discard(ctx, w.dirs), w.outfit.Shrink())
	}
	if err != nil {
		return errors.Join(err, left)
	}
	for _, c := range w.view.Containers {
		c.Care.Abandon()
	}
	if w.retired.Store(!w.stray); !w.stray || w.ending != nil {
		w.end()
	}
	if w.vacant {
		return nil
	}
	if err := w.a.cfg.Cgroups.Remove(ctx, w.uid); err != nil {
		return err
	}
	err = errors.Join(left, volume.Release(ctx, w.dirs, w.a.cfg.CSI))
	w.vacant = err == nil
	return err
}

// remember writes down how the pod has ended, unless it may run again.
func (w *worker) remember() error {
	if w.record.Ended != nil || w.stray {
		return nil
	}
	_, w.record.Ended = w.shown.Get()
	w.record.Refusal = w.refused
	err := w.a.ledger.Write(w.uid, w.record)
	if err != nil {
		w.record.Ended = nil
	}
	return err
}

// noteDone writes down which containers of a pod that goes on have ended for good, so that they
// do not run a second time after a reboot. Of a pod of an API server that has it.
func (w *worker) noteDone() error {
	_, told := w.shown.Get()
	r := w.record
	if r.Done = status.Done(w.pod, told); len(r.Done) <= len(w.record.Done) || source.Of(w.pod) == source.API {
		return nil
	}
	err := w.a.ledger.Write(w.uid, r)
	if err == nil {
		w.record = r
	}
	return err
}

// intend writes down what a pod is ended for before anything of it is, so that an agent after
// this one ends it, too. The disk may be full of just this pod: it ends all the same.
func (w *worker) intend() {
	if w.ending == nil || w.ending.Refusal == nil || w.stray || w.record.Ended != nil || w.record.Refusal != nil {
		return
	}
	r := w.record
	r.Refusal = w.refused
	if err := w.a.ledger.Write(w.uid, r); err == nil {
		w.record = r
	}
}

// tidy removes attempts and sandboxes that nobody needs any more, with what they have
// written, and has links to the logs of the others.
func (w *worker) tidy(ctx context.Context) error {
	var errs []error
	for _, id := range w.view.Extra {
		errs = append(errs, removal.RemoveContainer(ctx, w.a.cfg.Runtime, id))
	}
	for _, id := range w.view.Old {
		if !w.view.Needed(id) {
			errs = append(errs, removal.RemoveSandbox(ctx, w.a.cfg.Runtime, id))
		}
	}
	errs = append(errs, w.dropOld(), w.dropHooks(ctx))
	for name, c := range w.view.Containers {
		w.link(name, c)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("tidy up: %w", err)
	}
	w.view.Extra = nil
	return nil
}

// dropOld removes the logs and last words of all attempts but the last two, which are
// those that somebody can ask for.
func (w *worker) dropOld() error {
	var errs []error
	for name, c := range w.view.Containers {
		n := c.Now.GetMetadata().GetAttempt()
		if n < 2 || c.Kept == n-1 {
			continue
		}
		err := w.outfit.DropBefore(name, n-1)
		if errs = append(errs, err); err == nil {
			c.Kept = n - 1
		}
	}
	return errors.Join(errs...)
}
