package plan

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
)

// advance starts what comes next in a sandbox that is there, and mends what runs.
func (p *planner) advance() {
	for i := range p.Pod.Spec.EphemeralContainers {
		c := corev1.Container(p.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		switch got := p.Containers[c.Name]; {
		case got == nil:
			p.do(Action{Verb: Start, Container: c.Name})
		case got.State == Created && !got.Refused && p.here(&c) != nil:
			p.do(Action{Verb: Start, Container: c.Name, Attempt: got.Attempt, ID: got.ID}) // see keep
		}
	}
	if !p.advanceInit() {
		for i := range p.Pod.Spec.Containers {
			if c := &p.Pod.Spec.Containers[i]; p.here(c) == nil {
				p.plan.Waiting[c.Name] = Waiting{Reason: PodInitializing}
			}
		}
		return
	}
	for i := range p.Pod.Spec.Containers {
		p.keep(&p.Pod.Spec.Containers[i], false)
	}
}

// advanceInit goes through the init containers in their order, and says whether
// the others may run.
func (p *planner) advanceInit() bool {
	initialized := p.initialized()
	for i := range p.Pod.Spec.InitContainers {
		c := &p.Pod.Spec.InitContainers[i]
		got := p.here(c)
		switch {
		case Sidecar(c):
			p.keep(c, true)
			if !initialized && (got == nil || got.State != Running || got.Starting || !got.Up) {
				return p.blocked(i)
			}
		case initialized, got != nil && got.State == Exited && got.ExitCode == 0:
		default:
			p.keep(c, true)
			return p.blocked(i)
		}
	}
	return true
}

// blocked notes that what comes after an init container waits for it.
func (p *planner) blocked(by int) bool {
	for i := by + 1; i < len(p.Pod.Spec.InitContainers); i++ {
		if c := &p.Pod.Spec.InitContainers[i]; p.here(c) == nil {
			p.plan.Waiting[c.Name] = Waiting{Reason: PodInitializing}
		}
	}
	return false
}

// keep starts a container that should run, and mends one that runs.
func (p *planner) keep(c *corev1.Container, init bool) {
	got := p.here(c)
	switch {
	case got == nil && p.held:
		// Containers start one after the other, and one whose postStart hook runs is
		// not done with that. Once it was started, nobody is waited for.
		p.plan.Waiting[c.Name] = Waiting{Reason: ContainerCreating}
	case got == nil:
		if old := p.Containers[c.Name]; old != nil && old.State == Exited && ended(p.Pod, c, false, old) == stays && !init {
			return // it has done its work in a sandbox that is gone
		}
		p.start(c, "")
	case got.State == Created && (got.Refused || p.changed(c, got)):
		p.start(c, "it was created and never started")
	case got.State == Created:
		// Made by somebody who ended before it was started, or whose runtime did.
		p.startAs(c, Action{Attempt: got.Attempt, ID: got.ID})
	case got.State == Unknown:
		p.restart(c, "nobody knows what it does")
	case got.State == Running:
		p.mend(c, got)
	case ended(p.Pod, c, init, got) != stays && !p.pauses(c, got):
		p.start(c, "")
	}
}

// pauses says that a container that ended has to wait for its next attempt. One whose
// definition has changed since need not: it is another program, by all that is known.
// Nor need one that has ended after now: the clock was set back, nobody knows by how
// much, and it must not wait until the clock is there again.
func (p *planner) pauses(c *corev1.Container, got *Container) bool {
	if p.changed(c, got) {
		return false
	}
	pause := Backoff(got.Crashes, p.LongestPause)
	until := got.Finished.Add(pause)
	if pause == 0 || !p.Now.Before(until) || until.Sub(p.Now) > pause {
		return false
	}
	p.plan.Waiting[c.Name] = Waiting{Reason: CrashLoopBackOff, Until: until, Pause: pause}
	p.lookAgain(until)
	return true
}

func (p *planner) start(c *corev1.Container, why string) {
	attempt := uint32(0)
	if old := p.Containers[c.Name]; old != nil {
		attempt = old.Attempt + 1
	}
	p.startAs(c, Action{Attempt: attempt, Why: why})
}

// startAs starts a container as an attempt that is to be made, or with an ID one that was.
func (p *planner) startAs(c *corev1.Container, a Action) {
	p.plan.Waiting[c.Name] = Waiting{Reason: ContainerCreating}
	a.Verb, a.Container = Start, c.Name
	p.do(a)
	p.held = p.held || c.Lifecycle != nil && c.Lifecycle.PostStart != nil
}

// restart ends a container, and starts it again.
func (p *planner) restart(c *corev1.Container, why string) {
	p.do(Action{Verb: Stop, Container: c.Name, ID: p.here(c).ID, Why: why})
	p.wave++
	p.start(c, why)
	p.wave--
}

// mend looks at a container that runs: its hook, its probes, its image, its
// resources.
func (p *planner) mend(c *corev1.Container, got *Container) {
	p.held = p.held || got.Starting
	switch {
	case got.Sick != "":
		// It is restarted once it has ended, by its policy and with its pause.
		p.do(Action{Verb: Stop, Container: c.Name, ID: got.ID, Why: got.Sick, Grace: got.Grace})
	case p.changed(c, got):
		p.restart(c, "its definition has changed")
	case got.Resources != nil:
		p.resize(c, got)
	}
}

// changed says that an attempt was made by another definition than the container has
// now.
func (p *planner) changed(c *corev1.Container, got *Container) bool {
	return p.Hash != nil && got.Hash != "" && got.Hash != p.Hash(c)
}

// resize gives a container the resources of its spec, if they differ, in place or
// by a restart, as its resizePolicy says for each.
func (p *planner) resize(c *corev1.Container, got *Container) {
	changed, restarts := false, false
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if same(c.Resources.Requests, got.Resources.Requests, name) && same(c.Resources.Limits, got.Resources.Limits, name) {
			continue
		}
		changed = true
		for _, r := range c.ResizePolicy {
			restarts = restarts || r.ResourceName == name && r.RestartPolicy == corev1.RestartContainer
		}
	}
	switch {
	case restarts:
		p.restart(c, "its resources have changed, and its resizePolicy asks for a restart")
	case changed:
		p.do(Action{Verb: Resize, Container: c.Name, ID: got.ID, Why: "its resources have changed"})
	}
}

func same(a, b corev1.ResourceList, name corev1.ResourceName) bool {
	x, y := a[name], b[name]
	return x.Cmp(y) == 0
}

// phase is the pod's, by what was observed. What is planned will change it.
func (p *planner) phase() corev1.PodPhase {
	if p.plan.Reason == DeadlineExceeded || p.initFailed() || p.lost() {
		return corev1.PodFailed
	}
	started, running, failed := 0, 0, 0
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		got := p.Containers[c.Name]
		switch {
		case got == nil || got.State == Created:
			continue
		case got.State != Exited || ended(p.Pod, c, false, got) != stays && p.Ending == "":
			running++
		case got.ExitCode != 0:
			failed++
		}
		started++
	}
	return cmp.Or(p.endedPhase(started, running, failed), corev1.PodPending)
}

// endedPhase is nothing while a container has never been started: such a pod is Pending, even
// if others of it run.
func (p *planner) endedPhase(started, running, failed int) corev1.PodPhase {
	switch {
	case started < len(p.Pod.Spec.Containers) || started == 0:
		return ""
	case running > 0:
		return corev1.PodRunning
	case failed > 0:
		return corev1.PodFailed
	}
	return corev1.PodSucceeded
}
