package nodes

import (
	"slices"

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

// Pace chooses the nodes that may begin now. Those that are being worked on count,
// whatever the runtime, and get what else they are to have at once: the CRI runtime is
// restarted for all of them together.
func (p *Pool) Pace(members []*corev1.Node, most int) map[string]bool {
	admitted, busy := map[string]bool{}, 0
	var waiting []*corev1.Node
	for _, n := range members {
		switch p.progress(n) {
		case working:
			busy++
			admitted[n.Name] = true
		case idle:
			waiting = append(waiting, n)
		case finished:
		}
	}
	if p.gathering() {
		return admitted // or a node would begin with a part of them, and restart twice
	}
	// Nodes that are ready to be used go first: the others may never answer.
	slices.SortStableFunc(waiting, func(a, b *corev1.Node) int {
		if x, y := alive(a), alive(b); x != y {
			if x {
				return -1
			}
			return 1
		}
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	for _, n := range waiting {
		if busy >= most {
			break
		}
		admitted[n.Name] = true
		busy++
	}
	return admitted
}

// stage is how far a node is with all its runtimes.
type stage int

const (
	idle     stage = iota // something is missing, and nothing has begun
	working               // something has begun and is not done
	finished              // nothing to do
)

func (p *Pool) progress(n *corev1.Node) stage {
	out := finished
	for i := range p.Runtimes {
		r := &p.Runtimes[i]
		phase, pool := names.ReadPhase(n.Labels[names.Phase+r.Type])
		switch {
		case phase != names.None && pool != p.Name:
			return finished // another pool is at it
		case phase == names.Cleanup, phase == names.Leaving, phase == names.Install && !r.Ending && n.Labels[names.Ready+r.Type] != "true":
			return working
		case phase == names.None && !r.Ending && r.Offered:
			out = idle
		}
	}
	return out
}

// gathering says that of what the pool asks for something is about to be offered.
func (p *Pool) gathering() bool {
	return p.Valid && slices.ContainsFunc(p.Types, func(typ string) bool {
		at := slices.IndexFunc(p.Runtimes, func(r Runtime) bool { return r.Type == typ })
		return at < 0 || !p.Runtimes[at].Ending && !p.Runtimes[at].Offered && !p.Runtimes[at].Refused
	})
}

func alive(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
