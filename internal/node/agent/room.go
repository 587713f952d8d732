package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/status"
	"fairlead.run/internal/node/tally"
	"fairlead.run/internal/node/volume"
	"fairlead.run/internal/node/volume/survey"
)

// Room says which pods there is room for. It is asked by one goroutine at a time, in the
// order of pods, and is given those that were let in and have not ended, with their
// statuses. It must not wait.
type Room interface {
	// Admit lets a pod in. An error that is a *Refusal says why not; with one that has
	// Again the pod is tried once more whenever another one has ended.
	Admit(pod *corev1.Pod, running []*corev1.Pod) (Displaced, error)
	// Resize says whether a pod that runs can have what it asks for by now: an empty
	// reason if so, else one of the condition PodResizePending.
	Resize(pod *corev1.Pod, others []*corev1.Pod) (reason, message string)
}

// Outfitter is a Room that has devices for containers, too.
type Outfitter interface {
	Room
	// Outfit is what a container is given beside its spec, each time before it starts.
	// Unlike Admit it may wait for others.
	Outfit(ctx context.Context, pod *corev1.Pod, ct *corev1.Container) (podspec.Given, error)
}

func (w *worker) equip(ctx context.Context, ct *corev1.Container) (podspec.Given, error) {
	room, ok := w.a.cfg.Room.(Outfitter)
	if !ok {
		return podspec.Given{}, nil
	}
	return room.Outfit(ctx, w.pod, ct)
}

// Displaced are pods that have to end so that another one can run.
type Displaced struct {
	Pods []*corev1.Pod
	Why  Refusal
}

// everything has room for all pods.
type everything struct{}

func (everything) Admit(*corev1.Pod, []*corev1.Pod) (Displaced, error)        { return Displaced{}, nil }
func (everything) Resize(*corev1.Pod, []*corev1.Pod) (reason, message string) { return "", "" }

// standing is how a pod stands among others, which may read it.
type standing struct {
	entry    entry
	deferral capacity.Deferral // of a resize; the agent's mu guards it
	retired  atomic.Bool       // it has ended for good
	over     chan struct{}     // closed when it has, or is gone
	once     sync.Once
	measured atomic.Pointer[volume.Set] // its volumes, once they are there
}

// entry is whether a pod was let in. The agent's mu guards it.
type entry struct {
	admitted bool
	refusal  *Refusal  // why not
	behind   []*worker // what has to end before it is run
	told     bool      // somebody was told of the refusal
}

var errBehind = errors.New("it waits for the end of the pods that make room for it")

// admit lets a pod in, or finds that another agent has done so. The caller holds mu.
func (a *Agent) admit(w *worker) {
	p := w.in.Pod()
	r, _, err := a.ledger.Read(w.uid)
	switch {
	case r.Ended != nil, status.Terminal(p.Status.Phase):
		return
	case err != nil, r.Allocated != nil: // what is lost may have been let in
		w.entry = entry{admitted: true}
		return
	case p.DeletionTimestamp != nil:
		return
	}
	d, err := a.cfg.Room.Admit(p, a.running(w))
	if err != nil {
		refusal := &Refusal{}
		if !errors.As(err, &refusal) {
			refusal = &Refusal{Reason: capacity.ReasonUnexpected, Message: err.Error()}
		}
		if old := w.entry.refusal; old != nil && *old == *refusal {
			return
		}
		w.entry = entry{refusal: refusal}
		return
	}
	w.entry = entry{admitted: true}
	for _, p := range d.Pods {
		if other := a.workers[p.UID]; other != nil {
			other.in.Fail(podspec.Grace(p), d.Why)
			w.entry.behind = append(w.entry.behind, other)
		}
	}
}

// RoomChanged has pods tried once more that were not let in, and may be later.
func (a *Agent) RoomChanged() { poke(a.poked) }

// running are the pods that were let in and have not ended, but for one. The caller
// holds mu.
func (a *Agent) running(but *worker) []*corev1.Pod {
	var out []*corev1.Pod
	for _, w := range a.workers {
		if w == but || !w.entry.admitted || w.isOver() {
			continue
		}
		p := w.shown.WithStatus()
		if p == nil {
			p = w.in.Pod()
		}
		out = append(out, w.deferral.With(p))
	}
	slices.SortFunc(out, func(x, y *corev1.Pod) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) })
	return out
}

// retry has a pod looked at that waits for the end of others. The caller holds mu.
func (a *Agent) retry(w *worker) {
	switch {
	case len(w.entry.behind) > 0, w.deferral.Asks != nil:
		w.in.Wake()
	case w.entry.refusal != nil && w.entry.refusal.Again:
		if a.admit(w); w.entry.admitted {
			w.in.Reconsider()
		}
	}
}

// enter finds out whether the pod was let in, and remembers that. Without an error it
// was, or refused says why not.
func (w *worker) enter() error {
	w.a.mu.Lock()
	w.entry.behind = slices.DeleteFunc(w.entry.behind, (*worker).isOver)
	e := w.entry
	w.entry.told = w.entry.refusal != nil
	w.a.mu.Unlock()
	switch {
	case e.refusal != nil:
		w.refused, w.stray = e.refusal, e.refusal.Again
		if !e.told {
			w.event(corev1.EventTypeWarning, e.refusal.Reason, e.refusal.Message)
		}
		return nil
	case len(e.behind) > 0:
		return errBehind
	case w.record.Allocated != nil:
		return nil
	}
	r, allocated := w.record, capacity.AllocationOf(w.given)
	r.Allocated = &allocated
	if err := w.a.ledger.Write(w.uid, r); err != nil {
		return err
	}
	w.record = r
	return nil
}

// admitted says whether the pod was let in.
func (w *worker) admitted() bool {
	w.a.mu.Lock()
	defer w.a.mu.Unlock()
	return w.entry.admitted
}

// end is told to whoever waits for the end of the pod.
func (w *worker) end() {
	w.once.Do(func() { close(w.over) })
	poke(w.a.poked) // there may be room for others now
}

func (w *worker) isOver() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// Volumes is what volumes of the pods take, and the files that their containers have from the
// node, as the survey of the agent has it.
func (a *Agent) Volumes(ctx context.Context, ask survey.Ask) map[types.UID]survey.Pod {
	return a.volumes.Usage(ctx, ask)
}

// parts are what can be measured of all pods.
func (a *Agent) parts() map[types.UID][]volume.Part {
	out := map[types.UID][]volume.Part{}
	for _, w := range a.all() {
		if set := w.measured.Load(); set != nil {
			out[w.uid] = set.Parts()
		}
	}
	return out
}

// claims are the PersistentVolumeClaims of all pods. What could not be measured is left out.
func (a *Agent) claims() []tally.Claim {
	all := a.volumes.Usage(context.Background(), survey.Ask{Only: func(_ types.UID, u volume.Usage) bool { return u.Claim != "" }})
	var out []tally.Claim
	for _, w := range a.all() {
		for _, u := range all[w.uid].Volumes {
			out = append(out, tally.Claim{
				Namespace: w.in.Pod().Namespace, Name: u.Claim, Capacity: u.Capacity, Available: u.Available, Used: u.Bytes,
				Inodes: u.AllInodes, InodesFree: u.Free, InodesUsed: u.Inodes,
			})
		}
	}
	return out
}

// Await returns when a pod has ended for good, or is not here. The error is that of ctx
// if it ends before.
func (a *Agent) Await(ctx context.Context, uid types.UID) error {
	w := a.worker(uid)
	if w == nil {
		return nil
	}
	select {
	case <-w.over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of pod %s: %w", w.name, context.Cause(ctx))
	}
}
