package nodes

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/operator/names"
)

// mostPassed is how many nodes of a pool are passed over. More of them are no accident, but
// what an installation comes to there, which must not go on through the pool.
const mostPassed = 3

// dead is how long a node may not answer before nobody waits for it: the restart of a CRI
// runtime takes a kubelet away for a moment.
const dead = 5 * time.Minute

// atRuntime are reasons of attempts that came as far as the CRI runtime. The next one may be
// refused for the same reason, as it waits, or cannot undo what is left.
var atRuntime = []payload.Reason{payload.RuntimeUnavailable, payload.RestartFailed, payload.HandlerNotServed, payload.CheckFailed, payload.InternalError}

// refused says that an installer's pod has changed nothing on its node.
func refused(p *corev1.Pod) bool {
	_, r := Read(p)
	return r != nil && r.State == payload.Refused && !slices.Contains(atRuntime, r.Reason)
}

// since is since when a node does not answer; zero if it does, or nobody says.
func since(n *corev1.Node) time.Time {
	at := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if at < 0 {
		return n.CreationTimestamp.Time
	}
	return n.Status.Conditions[at].LastTransitionTime.Time
}

// stuck says why a node on which runtimes are installed for the first time holds up the
// others, or "". Nobody uses these runtimes there yet, and nothing tells that it will ever
// go on. While it may still answer, somebody has to look again.
func (p *Pool) stuck(n *corev1.Node) (why string) {
	away := !Alive(n)
	for i := range p.Runtimes {
		r := &p.Runtimes[i]
		phase, pool := names.ReadPhase(n.Labels[names.Phase+r.Type])
		switch {
		case phase == names.None:
		case phase != names.Install || pool != p.Name:
			return "" // something is taken away
		case offers(n, r.Type):
			if !away && r.turn(n.Name) != current {
				return "" // another release is at work
			}
		case away:
			why = "does not answer"
		case r.Refusals[n.Name]:
			why = "refused it"
		default:
			return ""
		}
	}
	if away && why != "" && p.Now.Sub(since(n)) < dead {
		p.later = true
		return ""
	}
	return why
}

// pass chooses of the nodes that are worked on those that do not count.
func (p *Pool) pass(working []*corev1.Node) map[string]string {
	out := map[string]string{}
	byName := func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) }
	for _, n := range slices.SortedFunc(slices.Values(working), byName) {
		if why := p.stuck(n); why != "" && len(out) < mostPassed {
			out[n.Name] = why
		}
	}
	return out
}
