package nodes

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"fairlead.run/internal/operator/names"
)

// Most is how many of some nodes may be worked on at the same time.
func Most(limit *intstr.IntOrString, nodes int) int {
	if limit == nil {
		return 1
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(limit, nodes, false)
	if err != nil || n < 1 {
		return 1
	}
	return n
}

// Pace is on which nodes there may be work now.
type Pace struct {
	// Admitted are those on which runtimes may be installed and taken away.
	Admitted map[string]bool
	// Renewed are those whose pods of a release before may be replaced.
	Renewed map[string]bool
	// Passed are those that are worked on and do not count, with why.
	Passed map[string]string
}

// admit chooses of all nodes that a pool concerns those that may begin or go on.
func (p *Pool) admit(all []*corev1.Node, limit *intstr.IntOrString) Pace {
	// Those that somebody else has do not count.
	of := slices.DeleteFunc(slices.Clone(all), func(n *corev1.Node) bool { return !p.Has(n) && !carries(n, p.Name) })
	return p.Pace(of, Most(limit, len(of)))
}

// Pace chooses the nodes whose CRI runtime may be restarted now, of those that are in
// the pool or have something of it. Those that are being worked on count, whatever the runtime and whether
// it comes or goes, and get what else they are to have at once: the CRI runtime is
// restarted for all of it together. Nodes that are new come before another release of
// what is there. A few do not count: those that have died or refuse what is installed there
// for the first time, for which the others would wait for ever.
func (p *Pool) Pace(all []*corev1.Node, most int) Pace {
	admitted := map[string]bool{}
	gathering := p.gathering()
	var at, waiting []*corev1.Node
	for _, n := range all {
		switch p.progress(n) {
		case working:
			at = append(at, n)
			admitted[n.Name] = true
		case lacking:
			if !gathering { // or it would begin with a part of them, and restart twice
				waiting = append(waiting, n)
			}
		case leaving:
			waiting = append(waiting, n)
		case finished:
		}
	}
	passed := p.pass(at)
	busy := len(at) - len(passed)
	// Nodes that can begin at once go first: the others may never answer.
	slices.SortStableFunc(waiting, func(a, b *corev1.Node) int {
		if x, y := p.prompt(a), p.prompt(b); x != y {
			if x {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, n := range waiting {
		if busy >= most {
			break
		}
		admitted[n.Name] = true
		busy++
	}
	return Pace{admitted, p.renew(all, admitted, passed, most), passed}
}

// stage is how far a node is with all its runtimes.
type stage int

const (
	finished stage = iota // nothing to do
	leaving               // something is to be taken away, and nothing has begun
	lacking               // something is missing, and nothing has begun
	working               // something has begun and is not done
)

func (p *Pool) progress(n *corev1.Node) stage {
	out, stays := finished, p.Has(n) && p.Chooses(n)
	for i := range p.Runtimes {
		r := &p.Runtimes[i]
		wanted := decision{Runtime: r, member: stays}.wanted(n)
		phase, pool := names.ReadPhase(n.Labels[names.Phase+r.Type])
		switch {
		case phase != names.None && pool != p.Name:
			return finished // another pool is at it
		case phase == names.Cleanup, wanted && begun(phase) && n.Labels[names.Ready+r.Type] != "true":
			return working
		case Alive(n) && p.installed(r, n) && r.turn(n.Name) == turning:
			// Pods of a node that is away are not ready either. It is not worked on, and
			// new nodes do not wait until it is back.
			return working
		case phase == names.Leaving:
			out = max(out, leaving)
		case phase == names.None && wanted && r.Offered:
			out = lacking
		}
	}
	return out
}

// begun says that an installer is at a runtime, or is about to be once more.
func begun(phase names.PhaseOf) bool { return phase == names.Install || phase == names.Leaving }

// prompt says that a node answers, and that no pod has to end before it can begin.
func (p *Pool) prompt(n *corev1.Node) bool {
	return Alive(n) && !slices.ContainsFunc(p.Runtimes, func(r Runtime) bool {
		phase, _ := names.ReadPhase(n.Labels[names.Phase+r.Type])
		return phase == names.None && r.Cleaners[n.Name] || phase == names.Leaving && r.Installers[n.Name]
	})
}

// gathering says that of what the pool asks for something is about to be offered.
func (p *Pool) gathering() bool {
	return p.Valid && slices.ContainsFunc(p.Types, func(typ string) bool {
		at := slices.IndexFunc(p.Runtimes, func(r Runtime) bool { return r.Type == typ })
		return at < 0 || !p.Runtimes[at].Ending && !p.Runtimes[at].Offered && !p.Runtimes[at].Refused
	})
}

// Alive says that the kubelet of a node answers.
func Alive(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
