// Package admission lets pods in as far as a node has room for them, in the order in which
// they come, and gives those that run what a resize asks for. What there is room for, a Room
// says; that pods are run, and ended, is for others.
package admission

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/inbox"
	"fairlead.run/internal/node/ledger"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/shown"
	"fairlead.run/internal/node/status"
)

// Gate is what pods come in by. Make it by New.
type Gate struct {
	room Room
	book ledger.Ledger

	mu     sync.Mutex
	guests map[types.UID]*Guest // those that have not ended
}

// New makes a gate. What was let in by one before it is in the ledger. A nil Room has room
// for all pods.
func New(room Room, book ledger.Ledger) *Gate {
	if room == nil {
		room = everything{}
	}
	return &Gate{room: room, book: book, guests: map[types.UID]*Guest{}}
}

// Guest is a pod at the gate, until it has ended.
type Guest struct {
	gate  *Gate
	uid   types.UID
	inbox *inbox.Inbox
	shown *shown.Shown
	over  chan struct{}

	// The gate's mu guards these.
	admitted bool
	refusal  *Refusal // why it was not let in
	behind   []*Guest // what has to end before it is run
	told     bool     // its worker was told of the refusal
	leaving  bool     // nobody wants it any more
	rests    bool     // nothing of it runs, or will
	deferral capacity.Deferral
}

// Guest is the pod with that UID, which has not asked yet. It is told by its inbox when it
// may go on, and counts with what is shown of it.
func (g *Gate) Guest(uid types.UID, in *inbox.Inbox, as *shown.Shown) *Guest {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := &Guest{gate: g, uid: uid, inbox: in, shown: as, over: make(chan struct{})}
	g.guests[uid] = out
	return out
}

// Ask asks for room, or finds that another agent has let the pod in.
func (p *Guest) Ask() {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	p.ask()
}

// ask is Ask of who holds mu.
func (p *Guest) ask() {
	pod := p.inbox.Pod()
	r, _, err := p.gate.book.Read(p.uid)
	switch {
	case r.Ended != nil, status.Terminal(pod.Status.Phase):
		return
	case err != nil, r.Allocated != nil: // what is lost may have been let in
		p.letIn()
		return
	case pod.DeletionTimestamp != nil:
		return
	}
	running, leaving := p.gate.running(p)
	d, err := p.gate.room.Admit(pod, running, leaving)
	if err != nil {
		refusal := &Refusal{}
		if !errors.As(err, &refusal) {
			refusal = &Refusal{Reason: capacity.ReasonUnexpected, Message: err.Error()}
		}
		if old := p.refusal; old == nil || *old != *refusal {
			p.admitted, p.refusal, p.behind, p.told = false, refusal, nil, false
		}
		return
	}
	p.letIn()
	for _, victim := range d.Pods {
		if other := p.gate.guests[victim.UID]; other != nil {
			other.inbox.Fail(podspec.Grace(victim), d.Why)
			p.behind = append(p.behind, other)
		}
	}
	for _, pod := range d.Behind {
		if other := p.gate.guests[pod.UID]; other != nil {
			p.behind = append(p.behind, other)
		}
	}
}

func (p *Guest) letIn() { p.admitted, p.refusal, p.behind, p.told = true, nil, nil, false }

// Leave says that nobody wants the pod any more. Who sends pods to the node counts its room as
// free: another one waits for that, and is not refused.
func (p *Guest) Leave() {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	p.leaving = true
}

// Rest says that nothing of the pod runs any more, or will: there is room for another one,
// though its files may take their time to go, and End is not called before. It is to be called
// before the pod's status says so, as another may be sent in its place then. The answer is
// whether it is the first time.
func (p *Guest) Rest() bool {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	was := p.rests
	p.rests = true
	return !was
}

// Rests says that Rest was called.
func (p *Guest) Rests() bool {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	return p.rests
}

// Leaves says that Leave was called.
func (p *Guest) Leaves() bool {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	return p.leaving
}

// Retry is that there may be room by now: the pod is looked at if it waits for that.
func (p *Guest) Retry() {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	switch {
	case len(p.behind) > 0, p.deferral.Asks != nil:
		p.inbox.Wake()
	case p.refusal != nil && p.refusal.Again:
		if p.ask(); p.admitted {
			p.inbox.Reconsider()
		}
	}
}

// Answer is what has come of Ask.
type Answer struct {
	Refusal *Refusal // why the pod was not let in
	News    bool     // that answer was not given before
	Waits   bool     // it was let in, and others have to end first
}

// Answer says whether the pod was let in.
func (p *Guest) Answer() Answer {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	p.behind = slices.DeleteFunc(p.behind, func(other *Guest) bool { return other.rests || other.ended() })
	out := Answer{Refusal: p.refusal, News: p.refusal != nil && !p.told, Waits: len(p.behind) > 0}
	p.told = p.refusal != nil
	return out
}

// Admitted says whether the pod was let in, though others may have to end first.
func (p *Guest) Admitted() bool {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	return p.admitted
}

// End is that nothing of the pod runs any more, so that there may be room for others. It may
// be called again.
func (p *Guest) End() {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	if p.ended() {
		return
	}
	if p.gate.guests[p.uid] == p {
		delete(p.gate.guests, p.uid)
	}
	close(p.over)
}

// Over is closed when the pod has ended.
func (p *Guest) Over() <-chan struct{} { return p.over }

func (p *Guest) ended() bool {
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}

// running are the pods that were let in and have not ended, but for one, and of them apart
// those that nobody wants any more. The caller holds mu.
func (g *Gate) running(but *Guest) (wanted, leaving []*corev1.Pod) {
	for _, p := range g.guests {
		if p == but || !p.admitted || p.rests {
			continue
		}
		pod := p.shown.WithStatus()
		if pod == nil {
			pod = p.inbox.Pod()
		}
		into := &wanted
		if p.leaving {
			into = &leaving
		}
		*into = append(*into, p.deferral.With(pod))
	}
	for _, list := range [][]*corev1.Pod{wanted, leaving} {
		slices.SortFunc(list, func(x, y *corev1.Pod) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) })
	}
	return wanted, leaving
}

// others are all that run beside one. The caller holds mu.
func (g *Gate) others(but *Guest) []*corev1.Pod { return slices.Concat(g.running(but)) }

// Resize asks whether there is room for what the pod asks for, and takes it if so: then there
// is no reason. Those come first that wait for room and are more important, or wait longer.
func (p *Guest) Resize(asks *corev1.Pod) (reason, message string) {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	next := p.deferral.Next(asks, time.Now())
	p.deferral = capacity.Deferral{}
	for _, other := range p.gate.deferred() {
		if other.deferral.Compare(next) < 0 {
			other.reserve()
		}
	}
	reason, message = p.gate.room.Resize(asks, p.gate.others(p))
	switch reason {
	case corev1.PodReasonDeferred:
		p.deferral = next
	case "":
		if _, st := p.shown.Get(); st != nil { // else the newest definition counts already
			p.shown.Set(asks, st) // counted from now on
		}
	}
	return reason, message
}

// Keep is that the pod asks for nothing but what it has.
func (p *Guest) Keep() {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	p.deferral = capacity.Deferral{}
}

// deferred are the pods whose resize waits for room, in the order in which they get it. The
// caller holds mu.
func (g *Gate) deferred() []*Guest {
	var out []*Guest
	for _, p := range g.guests {
		if p.deferral.Asks != nil {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(x, y *Guest) int { return cmp.Or(x.deferral.Compare(y.deferral), cmp.Compare(x.uid, y.uid)) })
	return out
}

// reserve keeps room for a resize that waits, if there is by now, and has its pod take it. The
// caller holds mu.
func (p *Guest) reserve() {
	reason, _ := p.gate.room.Resize(p.deferral.Asks, p.gate.others(p))
	p.deferral.Reserved = reason == ""
	if p.deferral.Reserved {
		p.inbox.Wake()
	}
}
