package nodes

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/names"
)

// Sign is what an installer's pod says of its node.
type Sign int

// The signs.
const (
	Unknown Sign = iota // there is no pod, or it has not said anything
	Done                // it is installed, or gone, and was verified
	Broken              // it is not proven to work
)

// Runtime is one that a pool has, or that is being taken away from it.
type Runtime struct {
	Type string
	// Ending says that its ContainerRuntime is being deleted, and Forced that nobody
	// waits for the nodes.
	Ending, Forced bool
	// Signs are those of the installer's pods, by node.
	Signs map[string]Sign
	// Gone are those of the pods that take it away.
	Gone map[string]Sign
}

// Pool is all that decides about its nodes.
type Pool struct {
	Name string
	// Claims says that nodes are put into the pool by a label, and Chooses which ones.
	// Without it, Chooses says which nodes somebody else has put there.
	Claims  bool
	Chooses func(*corev1.Node) bool
	// Others are the pools that exist beside it: their nodes are theirs.
	Others   []string
	CRI      string
	Runtimes []Runtime
	Taint    *v1alpha1.StartupTaint
	// Busy says that pods run on a runtime of a node; it is asked only where that
	// keeps it from being taken away.
	Busy func(node, typ string) (bool, error)
}

// Has says whether a node is in the pool.
func (p *Pool) Has(n *corev1.Node) bool {
	if !p.Claims {
		return p.Chooses(n)
	}
	return n.Labels[gardener.LabelPool] == p.Name
}

// Contested says that the pool chooses a node that another one has.
func (p *Pool) Contested(n *corev1.Node) bool {
	has := n.Labels[gardener.LabelPool]
	return p.Claims && p.Chooses(n) && has != p.Name && slices.Contains(p.Others, has)
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
// be installed now. The node is n itself if nothing is to change.
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
	if member && p.settled(n) {
		lift(out, p.Taint)
	}
	if maps.Equal(out.Labels, n.Labels) && len(out.Spec.Taints) == len(n.Spec.Taints) {
		return n, nil
	}
	return out, nil
}

// claim puts a node into the pool, or lets it go.
func (p *Pool) claim(n *corev1.Node) {
	has := n.Labels[gardener.LabelPool]
	switch {
	case p.Chooses(n) && (has == "" || has != p.Name && !slices.Contains(p.Others, has)):
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

// runtime decides about one runtime; was is the node before.
func (p *Pool) runtime(n, was *corev1.Node, d decision) error {
	wanted := d.member && !d.Ending
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
	if d.member || phase != names.None {
		mark(names.Requested+d.Type, wanted)
		mark(names.RequestedSeed+d.Type, wanted)
	}
	if d.Ending && d.Forced {
		mark(names.Ready+d.Type, false)
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
	if phase != names.None || d.member {
		mark(names.Ready+d.Type, wanted && next == names.Install && ready(was.Labels[names.Ready+d.Type] == "true", d.Signs[n.Name]))
	}
	return nil
}

// next is the phase that follows.
func (p *Pool) next(was *corev1.Node, phase names.PhaseOf, d decision) (names.PhaseOf, error) {
	wanted := d.member && !d.Ending
	switch {
	case phase == names.None && wanted && d.admit:
		return names.Install, nil
	case phase == names.Cleanup && d.Gone[was.Name] == Done:
		return names.None, nil
	case phase == names.Install && !wanted && was.Labels[names.Ready+d.Type] == "":
		// Only now does no new pod come: the label was off before this look at pods.
		busy, err := p.Busy(was.Name, d.Type)
		if err != nil || busy {
			return phase, err
		}
		return names.Cleanup, nil
	}
	return phase, nil
}

// ready says whether the label stays or comes. What is not known changes nothing: a
// pod may be replaced, or its node be away for a moment, and the runtime is as it was.
func ready(has bool, s Sign) bool {
	switch s {
	case Done:
		return true
	case Broken:
		return false
	}
	return has
}

// settled says that all runtimes of the pool were ready on a node before.
func (p *Pool) settled(n *corev1.Node) bool {
	for i := range p.Runtimes {
		if r := &p.Runtimes[i]; !r.Ending && n.Labels[names.Ready+r.Type] != "true" {
			return false
		}
	}
	return p.Has(n)
}

func lift(n *corev1.Node, taint *v1alpha1.StartupTaint) {
	if taint == nil {
		return
	}
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == taint.Key && string(t.Effect) == taint.Effect
	})
}
