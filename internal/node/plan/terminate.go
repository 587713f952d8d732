package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// terminate ends the pod: containers at once, then sidecars, the last one first,
// then the sandbox.
func (p *planner) terminate(why string) {
	p.stopContainers(why)
	if p.Sandbox != nil && p.Sandbox.Ready {
		p.do(Action{Verb: StopSandbox, ID: p.Sandbox.ID, Why: why})
	}
}

// stopContainers ends all that runs, in order.
func (p *planner) stopContainers(why string) {
	for i := range p.Pod.Spec.EphemeralContainers {
		c := corev1.Container(p.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		p.stop(&c, why)
	}
	p.stopLasting(why)
}

// stopLasting ends all that runs but ephemeral containers, in order.
func (p *planner) stopLasting(why string) {
	spec := &p.Pod.Spec
	first := slices.Clone(spec.Containers)
	var sidecars []*corev1.Container
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; Sidecar(c) {
			sidecars = append(sidecars, c)
		} else {
			first = append(first, *c)
		}
	}
	for i := range first {
		p.stop(&first[i], why)
	}
	// Sidecars end later, and are told of it now.
	for _, c := range sidecars {
		if got := p.Containers[c.Name]; got != nil && got.State == Running && !got.Warned && c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
			p.do(Action{Verb: PreStop, Container: c.Name, ID: got.ID, Why: why})
		}
	}
	p.next()
	for _, c := range slices.Backward(sidecars) {
		p.stop(c, why)
		p.next()
	}
}

// stop ends a container that may run.
func (p *planner) stop(c *corev1.Container, why string) {
	if got := p.Containers[c.Name]; got != nil && (got.State == Running || got.State == Unknown) {
		p.do(Action{Verb: Stop, Container: c.Name, ID: got.ID, Why: why})
	}
}

// startOver ends all containers and removes them, so that the pod begins again in
// its sandbox, after the pause of the one that is the cause. Whoever removes them
// keeps the numbers of their attempts and of their crashes. Ephemeral containers go on:
// nobody could start them again.
//
// Those that are the cause go last, and only once the others have: as long as one of them is
// there, whoever is asked next finds again that all start over.
func (p *planner) startOver(because *corev1.Container) {
	p.stopLasting("container " + because.Name + " ended in a way that restarts all of them")
	if p.pauses(because, p.here(because)) {
		return
	}
	all := slices.Concat(p.Pod.Spec.InitContainers, p.Pod.Spec.Containers)
	for _, causes := range []bool{false, true} {
		for i := range all {
			if got := p.Containers[all[i].Name]; got != nil && p.causes(&all[i]) == causes {
				p.do(Action{Verb: Remove, Container: all[i].Name, ID: got.ID})
			}
		}
		p.next()
	}
}
