package agent

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/removal"
)

// inbox is what a worker is told while it may be busy. Nobody waits for it.
type inbox struct {
	woken chan struct{}

	mu     sync.Mutex
	again  bool        // what it waits for may be there now
	unseen bool        // the runtime has something new of the pod
	next   *corev1.Pod // its newest definition
	ending *ending     // nil as long as it is to run
	cut    context.CancelFunc
}

// ending is that a pod is to end.
type ending struct {
	by  *removal.Deadline
	why string
	// refusal is what the pod has failed of; nil if it is simply to go.
	refusal *Refusal
	// forget says that nothing is to be left of it.
	forget bool
}

func newInbox(p *corev1.Pod) *inbox {
	in := &inbox{woken: make(chan struct{}, 1), next: p, unseen: true}
	in.deleted(p)
	return in
}

// look has the worker ask the runtime.
func (in *inbox) look() {
	in.mark()
	in.wake()
}

// reconsider has the worker try once more what was refused, or could not be started.
func (in *inbox) reconsider() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.again = true
	in.wake()
}

// mark has the worker ask the runtime when it thinks next.
func (in *inbox) mark() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.unseen = true
}

// wake has the worker think again.
func (in *inbox) wake() { poke(in.woken) }

// pod is its newest definition.
func (in *inbox) pod() *corev1.Pod {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.next
}

// update is the pod as it is wanted now.
func (in *inbox) update(p *corev1.Pod) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if p == in.next || sameWish(p, in.next) {
		return
	}
	in.next = p
	in.deleted(p)
	in.wake()
}

// deleted looks whether a pod was deleted. The caller holds mu, or nobody else has
// the inbox.
func (in *inbox) deleted(p *corev1.Pod) {
	if p.DeletionTimestamp == nil {
		return
	}
	grace := podspec.Grace(p)
	if p.DeletionGracePeriodSeconds != nil {
		grace = *p.DeletionGracePeriodSeconds
	}
	in.finish(grace, ending{why: "the pod was deleted", forget: true})
}

// end ends the pod, and nothing is left of it.
func (in *inbox) end(why string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ending == nil || !in.ending.forget {
		in.finish(podspec.Grace(in.next), ending{why: why, forget: true})
	}
}

// fail ends the pod, which has failed then.
func (in *inbox) fail(grace int64, why Refusal) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.finish(grace, ending{why: why.Message, refusal: &why})
}

// finish begins an end, or hastens it. The caller holds mu.
func (in *inbox) finish(grace int64, e ending) {
	if old := in.ending; old != nil {
		old.by.Sooner(grace)
		e.by = old.by
		e.forget = e.forget || old.forget
		if old.refusal != nil {
			e.refusal, e.why = old.refusal, old.why
		}
	} else {
		e.by = removal.In(grace)
		if in.cut != nil {
			in.cut() // what is under way is of no use any more
		}
	}
	in.ending = &e
	in.wake()
}

// open gives what there is, and a context for what is done with it: it ends when that
// has become pointless.
func (in *inbox) open(ctx context.Context) (context.Context, letter) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.cut != nil {
		in.cut()
	}
	ctx, in.cut = context.WithCancel(ctx)
	l := letter{in.next, in.ending, in.unseen, in.again}
	in.unseen, in.again = false, false
	return ctx, l
}

// letter is what a worker finds in its inbox.
type letter struct {
	pod    *corev1.Pod
	ending *ending
	unseen bool
	again  bool
}

// close ends the last context.
func (in *inbox) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.cut != nil {
		in.cut()
	}
}

// sameWish says that two versions of a pod ask for the same.
func sameWish(a, b *corev1.Pod) bool {
	if (a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil) || a.DeletionTimestamp != nil && !equality.Semantic.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) {
		return false
	}
	for _, gate := range a.Spec.ReadinessGates {
		if conditionOf(a, gate.ConditionType) != conditionOf(b, gate.ConditionType) {
			return false
		}
	}
	return equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

func conditionOf(p *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}
