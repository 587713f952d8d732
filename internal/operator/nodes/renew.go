package nodes

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/operator/names"
)

// Installer is a pod that installs a runtime on a node.
type Installer struct {
	Name     string
	UID      types.UID
	Revision string // of what it was made from
	Ready    bool   // the runtime was verified, and the pod stays
	Ends     bool   // it is being deleted
}

func installer(p *corev1.Pod) Installer {
	return Installer{p.Name, p.UID, p.Annotations[names.AnnotationRevision], Ready(p), p.DeletionTimestamp != nil}
}

// turn is how far a node is with what a runtime's DaemonSet has now. The later ones say
// more of a node with several runtimes.
type turn int

const (
	current  turn = iota // its pod is of that, and ready
	outdated             // its pod is of another release or other settings, and ready
	broken               // it is of another one and not ready, so that the node loses nothing
	turning              // its pod ends, begins or is missing
)

func (r *Runtime) turn(node string) turn {
	if len(r.Pods[node]) == 0 {
		return turning
	}
	out := current
	for _, p := range r.Pods[node] {
		switch old := r.old(p); {
		case p.Ends, !old && !p.Ready:
			return turning
		case old && !p.Ready:
			out = max(out, broken)
		case old:
			out = max(out, outdated)
		}
	}
	return out
}

// old says that a pod is of another revision than its DaemonSet, if that is there.
func (r *Runtime) old(p Installer) bool { return r.Revision != "" && p.Revision != r.Revision }

// installed says that the DaemonSet of a runtime has a pod on a node, or makes one.
func (p *Pool) installed(r *Runtime, n *corev1.Node) bool {
	phase, pool := names.ReadPhase(n.Labels[names.Phase+r.Type])
	stays := p.Has(n) && p.Chooses(n)
	return phase == names.Install && pool == p.Name && decision{Runtime: r, member: stays}.wanted(n) && r.Machines.Fit(n)
}

func (p *Pool) turn(n *corev1.Node) turn {
	out := current
	for i := range p.Runtimes {
		if r := &p.Runtimes[i]; p.installed(r, n) {
			out = max(out, r.turn(n.Name))
		}
	}
	return out
}

// outdated are the pods of a node that are to be replaced, of all its runtimes.
func (p *Pool) outdated(n *corev1.Node) (out []Installer) {
	for i := range p.Runtimes {
		r := &p.Runtimes[i]
		if !p.installed(r, n) {
			continue
		}
		for _, one := range r.Pods[n.Name] {
			if r.old(one) && !one.Ends {
				out = append(out, one)
			}
		}
	}
	return out
}

// renew chooses the nodes whose pods may be replaced by those of another release, beside
// those that were admitted to other work. It goes by nothing but what there is: whoever
// looks at the same objects chooses the same nodes, so that two operators, or one that
// has just begun, take no more of them.
//
// A node has its turn with all its runtimes, until each pod is ready. Nodes that do not
// answer count, as they serve nobody, and keep the pods that they have: when they come
// back all at once, they wait for their turns like the others. A pod that is not ready
// has nothing to lose, so that a release which fails never keeps the next one from the
// nodes that it is on. A node that answers and is passed over has never had the runtime:
// it may refuse each release, and takes nothing from those that have it.
func (p *Pool) renew(all []*corev1.Node, admitted map[string]bool, passed map[string]string, most int) map[string]bool {
	out, busy, away := map[string]bool{}, 0, 0
	var failing, waiting []*corev1.Node
	for _, n := range all {
		switch at := p.turn(n); {
		case !Alive(n):
			away++
		case passed[n.Name] != "":
			out[n.Name] = true
		case at == broken:
			failing = append(failing, n)
		case at == turning || admitted[n.Name]:
			out[n.Name] = true
			busy++
		case at == outdated:
			waiting = append(waiting, n)
		}
	}
	byName := func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(failing, byName)
	slices.SortFunc(waiting, byName)
	for _, n := range failing {
		if busy >= most {
			away++
			continue
		}
		out[n.Name] = true
		busy++
	}
	for _, n := range waiting {
		if busy+away >= most {
			break
		}
		out[n.Name] = true
		busy++
	}
	return out
}
