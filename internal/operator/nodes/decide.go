package nodes

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/validate"
)

// Sign is what an installer's pod says of its node. The zero Sign is that of a pod
// that is not there, or has not said anything.
type Sign struct {
	// Known says that Handlers are those that the node serves now.
	Known    bool
	Handlers []string
	// Done says that the pod has done and verified what it was made for.
	Done bool
}

// Runtime is one that a pool has, or that is being taken away from it.
type Runtime struct {
	Type string
	// Ending says that its ContainerRuntime is being deleted, and Forced that nobody
	// waits for the nodes.
	Ending, Forced bool
	// Offered says that there is what installs it and what takes it away again, and
	// Refused that its ContainerRuntime says why there is not.
	Offered, Refused bool
	// Revision is that of the DaemonSet which installs it, and Pods are the installer's,
	// by node.
	Revision string
	Pods     map[string][]Installer
	// Machines are those that it goes to.
	Machines validate.Machines
	// Refusals are the nodes on which the installer has refused to change anything.
	Refusals map[string]bool
	// Signs are those of the installer's pods, by node.
	Signs map[string]Sign
	// Gone are those of the pods that take it away.
	Gone map[string]Sign
	// Installers and Cleaners are the nodes on which pods of either still are.
	Installers, Cleaners map[string]bool
}

// Pool is all that decides about its nodes.
type Pool struct {
	Name string
	// Claims says that nodes are put into the pool by a label, and Chooses which ones.
	// Without it, Chooses says which nodes somebody else has put there.
	Claims  bool
	Chooses func(*corev1.Node) bool
	CRI     string
	// Valid says that the pool can be acted on, and Types what it asks for then.
	Valid    bool
	Types    []string
	Runtimes []Runtime
	Taint    *v1alpha1.StartupTaint
	// Busy says that pods run on a runtime of a node, and Installing that a pod of the
	// installer still is there. They are asked only where that keeps a runtime from
	// being taken away.
	Busy, Installing func(node, typ string) (bool, error)

	// Now is the time, by which nodes that do not answer are told from those that are gone
	// for a moment.
	Now time.Time

	held  bool // Busy has said so of a node
	later bool // a node is waited for that has not answered for a moment
}

// Has says whether a node is in the pool.
func (p *Pool) Has(n *corev1.Node) bool {
	if !p.Claims {
		return p.Chooses(n)
	}
	return n.Labels[gardener.LabelPool] == p.Name
}

// Concerns says whether there is anything to decide about a node.
func (p *Pool) Concerns(n *corev1.Node) bool {
	if p.Has(n) || p.Chooses(n) {
		return true
	}
	for key, value := range n.Labels {
		if len(key) > len(names.Phase) && key[:len(names.Phase)] == names.Phase {
			if _, pool := names.ReadPhase(value); pool == p.Name {
				return true
			}
		}
	}
	return false
}

// Decide is what a node should be, as a changed copy. Admit says that its runtimes may
// be installed and taken away now. The node is n itself if nothing is to change.
func (p *Pool) Decide(n *corev1.Node, admit bool) (*corev1.Node, error) {
	out := n.DeepCopy()
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	if p.Claims {
		p.claim(out)
	}
	member := p.Has(out)
	for i := range p.Runtimes {
		if err := p.runtime(out, n, decision{&p.Runtimes[i], member, admit}); err != nil {
			return nil, err
		}
	}
	if member && p.settled(n) && p.settled(out) {
		lift(out, p.Taint)
	}
	if maps.Equal(out.Labels, n.Labels) && len(out.Spec.Taints) == len(n.Spec.Taints) {
		return n, nil
	}
	return out, nil
}

// claim puts a node into the pool, or lets it go. One that somebody has put into
// another pool stays there: it may be Gardener's.
func (p *Pool) claim(n *corev1.Node) {
	has := n.Labels[gardener.LabelPool]
	switch {
	case p.Chooses(n) && has == "":
		n.Labels[gardener.LabelPool], n.Labels[gardener.LabelCRI] = p.Name, p.CRI
	case p.Chooses(n) && has == p.Name:
		n.Labels[gardener.LabelCRI] = p.CRI
	case !p.Chooses(n) && has == p.Name:
		delete(n.Labels, gardener.LabelPool)
		delete(n.Labels, gardener.LabelCRI)
	}
}

// decision is about one runtime on a node that is in the pool or not.
type decision struct {
	*Runtime
	member, admit bool
}

// wanted says that the runtime is to be on the node. What is verified there stays, also
// if somebody says then that the pool is of another architecture or image.
func (d decision) wanted(n *corev1.Node) bool {
	return d.member && !d.Ending && (d.Machines.Fit(n) || offers(n, d.Type))
}

// runtime decides about one runtime; was is the node before.
func (p *Pool) runtime(n, was *corev1.Node, d decision) error {
	wanted := d.wanted(was)
	mark := func(key string, yes bool) {
		if yes {
			n.Labels[key] = "true"
		} else {
			delete(n.Labels, key)
		}
	}
	phase, pool := names.ReadPhase(n.Labels[names.Phase+d.Type])
	if phase != names.None && pool != p.Name {
		return nil // the pool that it was in has not finished
	}
	ask := func(yes bool) {
		mark(names.Requested+d.Type, yes)
		mark(names.RequestedSeed+d.Type, yes)
	}
	if d.Ending && d.Forced {
		ask(false)
		mark(names.Ready+d.Type, false)
		serve(n, d.Type, nil)
		delete(n.Labels, names.Phase+d.Type)
		return nil
	}
	next, err := p.next(was, phase, d)
	if err != nil {
		return err
	}
	if next == names.None {
		delete(n.Labels, names.Phase+d.Type)
	} else {
		n.Labels[names.Phase+d.Type] = next.Value(p.Name)
	}
	if phase == names.None && !d.member {
		return nil
	}
	// With the phase and not before it: who takes the runtime away goes by that.
	ask(wanted && next != names.None)
	// What is not known changes nothing: a pod may be replaced, or its node be away for
	// a moment, and the runtime is as it was.
	switch sign := d.Signs[n.Name]; {
	case !wanted || next != names.Install:
		mark(names.Ready+d.Type, false)
		serve(n, d.Type, nil)
	case sign.Known:
		mark(names.Ready+d.Type, sign.Done)
		serve(n, d.Type, sign.Handlers)
	}
	return nil
}

// serve has a node's labels say which handlers of a type it serves.
func serve(n *corev1.Node, typ string, handlers []string) {
	maps.DeleteFunc(n.Labels, func(key, value string) bool {
		name, ok := strings.CutPrefix(key, names.Handler)
		return ok && value == typ && !slices.Contains(handlers, name)
	})
	for _, h := range handlers {
		n.Labels[names.Handler+h] = typ
	}
}

// offers says that new pods may still come to a type on a node.
func offers(n *corev1.Node, typ string) bool {
	if n.Labels[names.Ready+typ] != "" {
		return true
	}
	for key, value := range n.Labels {
		if strings.HasPrefix(key, names.Handler) && value == typ {
			return true
		}
	}
	return false
}

// next is the phase that follows.
func (p *Pool) next(was *corev1.Node, phase names.PhaseOf, d decision) (names.PhaseOf, error) {
	wanted := d.wanted(was)
	switch {
	case phase == names.None && wanted && d.admit && d.Offered && !d.Cleaners[was.Name]:
		// Of two pods that are there for a moment, the one that cleans would win.
		return names.Install, nil
	case phase == names.Leaving && wanted:
		return names.Install, nil
	case phase == names.Cleanup && d.Gone[was.Name].Done:
		return names.None, nil
	case phase == names.Install && !wanted && !offers(was, d.Type):
		// Only now does no new pod come: the labels were off before this look at pods.
		return unless(p.Busy, names.Leaving, place{was.Name, d.Type, phase})
	case phase == names.Leaving && d.admit:
		// The installer puts back what is taken away, as long as it is there.
		return unless(p.Installing, names.Cleanup, place{was.Name, d.Type, phase})
	}
	return phase, nil
}

// place is a type on a node, in some phase.
type place struct {
	node, typ string
	phase     names.PhaseOf
}

// unless is the next phase, or that of now as long as something holds it up.
func unless(held func(node, typ string) (bool, error), next names.PhaseOf, at place) (names.PhaseOf, error) {
	is, err := held(at.node, at.typ)
	if err != nil || is {
		return at.phase, err
	}
	return next, nil
}

// settled says that all runtimes that the pool asks for were ready on a node before.
// Of a pool that is not valid nobody knows what it asks for.
func (p *Pool) settled(n *corev1.Node) bool {
	for _, typ := range p.Types {
		at := slices.IndexFunc(p.Runtimes, func(r Runtime) bool { return r.Type == typ && !r.Ending })
		if at < 0 || n.Labels[names.Ready+typ] != "true" {
			return false
		}
	}
	return p.Valid && p.Has(n)
}

func lift(n *corev1.Node, taint *v1alpha1.StartupTaint) {
	if taint == nil {
		return
	}
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == taint.Key && string(t.Effect) == taint.Effect
	})
}
