// Package inbox is what the worker of a pod is told while it may be busy: a newer
// definition, that the runtime has something new, that the pod is to end. Nobody who
// tells waits for it. What the worker makes of it is its own.
package inbox

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/node/ledger"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/removal"
	"fairlead.run/internal/node/status"
)

// Inbox is that of one worker. Make it by New.
type Inbox struct {
	woken chan struct{}

	mu     sync.Mutex
	anew   bool        // it may be let run now
	again  bool        // what it waits for may be there now
	unseen bool        // the runtime has something new of the pod
	next   *corev1.Pod // its newest definition
	seen   *corev1.Pod // the newest version that was compared with it
	ending *Ending     // nil as long as it is to run
	cut    context.CancelFunc
}

// Ending is that a pod is to end.
type Ending struct {
	By  *removal.Deadline
	Why string
	// Refusal is what the pod has failed of; nil if it is simply to go.
	Refusal *ledger.Refusal
	// Forget says that nothing is to be left of it.
	Forget bool
	// Until is when it is to be gone, if all goes well.
	Until time.Time
	// Resume says that it is to run again once it has ended, as what it was ended for
	// is over.
	Resume bool
}

// New makes the inbox of a pod.
func New(p *corev1.Pod) *Inbox {
	in := &Inbox{woken: make(chan struct{}, 1), next: p, unseen: true}
	in.deleted(p)
	return in
}

// Look has the worker ask the runtime.
func (in *Inbox) Look() {
	in.Mark()
	in.Wake()
}

// Reconsider has the worker ask once more where a pod can run that was refused.
func (in *Inbox) Reconsider() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.anew = true
	in.Wake()
}

// Retry is Reconsider, and has the worker try at once what could not be started.
func (in *Inbox) Retry() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.anew, in.again = true, true
	in.Wake()
}

// Mark has the worker ask the runtime when it thinks next.
func (in *Inbox) Mark() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.unseen = true
}

// Wake has the worker think again.
func (in *Inbox) Wake() {
	select {
	case in.woken <- struct{}{}:
	default:
	}
}

// Woken tells when to think again.
func (in *Inbox) Woken() <-chan struct{} { return in.woken }

// Pod is its newest definition.
func (in *Inbox) Pod() *corev1.Pod {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.next
}

// Update is the pod as it is wanted now.
func (in *Inbox) Update(p *corev1.Pod) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if p == in.next || p == in.seen {
		return // all pods are told when one has changed, and comparing takes its time
	}
	if in.seen = p; sameWish(p, in.next) {
		return
	}
	in.next = p
	in.deleted(p)
	in.Wake()
}

// deleted looks whether a pod was deleted. The caller holds mu, or nobody else has
// the inbox.
func (in *Inbox) deleted(p *corev1.Pod) {
	if p.DeletionTimestamp == nil {
		return
	}
	grace := podspec.Grace(p)
	if p.DeletionGracePeriodSeconds != nil {
		grace = *p.DeletionGracePeriodSeconds
	}
	in.finish(grace, Ending{Why: "the pod was deleted", Forget: true})
}

// End ends the pod, and nothing is left of it.
func (in *Inbox) End(why string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ending == nil || !in.ending.Forget {
		in.finish(podspec.Grace(in.next), Ending{Why: why, Forget: true})
	}
}

// Fail ends the pod, which has failed then.
func (in *Inbox) Fail(grace int64, why ledger.Refusal) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.finish(grace, Ending{Why: why.Message, Refusal: &why})
}

// Resume has a pod run again that has failed for a reason that is over by now. One that
// is still ending does so first.
func (in *Inbox) Resume() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ending == nil || in.ending.Forget || in.ending.Refusal == nil || !in.ending.Refusal.Again {
		return
	}
	e := *in.ending // the worker may read the old one
	e.Resume = true
	in.ending = &e
	in.Wake()
}

// Going is the pod as others are to see it: one of which nothing is to be left says when it
// will be gone, whoever has decided that.
func (in *Inbox) Going(p *corev1.Pod) *corev1.Pod {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ending == nil || !in.ending.Forget || p.DeletionTimestamp != nil {
		return p
	}
	out, at := *p, metav1.NewTime(in.ending.Until)
	out.DeletionTimestamp = &at
	return &out
}

// finish begins an end, or hastens it. The caller holds mu.
func (in *Inbox) finish(grace int64, e Ending) {
	e.Until = time.Now().Add(time.Duration(grace) * time.Second).Truncate(time.Second)
	if old := in.ending; old != nil {
		if old.Until.Before(e.Until) {
			e.Until = old.Until
		}
		old.By.Sooner(grace)
		e.By = old.By
		e.Forget = e.Forget || old.Forget
		if old.Refusal != nil {
			e.Refusal, e.Why = old.Refusal, old.Why
		}
	} else {
		e.By = removal.In(grace)
		if in.cut != nil {
			in.cut() // what is under way is of no use any more
		}
	}
	in.ending = &e
	in.Wake()
}

// Open gives what there is, and a context for what is done with it: it ends when that
// has become pointless.
func (in *Inbox) Open(ctx context.Context) (context.Context, Letter) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.cut != nil {
		in.cut()
	}
	ctx, in.cut = context.WithCancel(ctx)
	l := Letter{in.next, in.ending, in.unseen, in.anew, in.again}
	in.unseen, in.anew, in.again = false, false, false
	return ctx, l
}

// Letter is what a worker finds in its inbox.
type Letter struct {
	Pod    *corev1.Pod
	Ending *Ending // nil as long as it is to run
	Unseen bool    // the runtime has something new of the pod
	Anew   bool    // it may be let run now
	Again  bool    // what it waits for may be there now
}

// Close ends the last context.
func (in *Inbox) Close() {
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
	if status.Terminal(a.Status.Phase) != status.Terminal(b.Status.Phase) {
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
