package plan

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Verb is what to do.
type Verb string

// The verbs.
const (
	RunSandbox  Verb = "RunSandbox"  // run a new one
	StopSandbox Verb = "StopSandbox" // stop it, and so all that is in it
	Start       Verb = "Start"       // create and start an attempt at a container
	PreStop     Verb = "PreStop"     // begin the preStop hook of a container, and do not wait for it
	Stop        Verb = "Stop"        // end a container gracefully, after its preStop hook
	Remove      Verb = "Remove"      // remove a container that has ended
	Resize      Verb = "Resize"      // give a running container its spec's resources
)

// Action is one thing to do.
type Action struct {
	Verb      Verb
	Container string // its name; empty for sandboxes
	ID        string // of what is there already
	Attempt   uint32 // of what is made
	Why       string // for an event; may be empty
	Grace     *int64 // seconds for a Stop; nil for what the pod allows
	// Wave orders actions: those of one may be done at once, those of the next
	// wait until they are done. It starts with 0 and grows by one, or stays.
	Wave int
}

// Plan is what is to be done, and what the pod is until then.
type Plan struct {
	Actions []Action  // by waves
	Again   time.Time // when to ask again if nothing happens; zero for never
	Phase   corev1.PodPhase
	Reason  string // why the pod ended, if it was ended: "DeadlineExceeded"
	// Waiting is why containers do not run, by name: CrashLoopBackOff with the
	// pause, PodInitializing.
	Waiting map[string]Waiting
	// Lost says that the pod has failed as its sandbox is gone, and it must not run twice.
	Lost bool
	// StartsOver is the container whose end has all of them end and start again, from then
	// until they are removed (KEP-5532); empty if none does.
	StartsOver string
}

// Waiting is why a container does not run.
type Waiting struct {
	Reason string
	Until  time.Time     // zero if that is not known
	Pause  time.Duration // of a CrashLoopBackOff
}

// The reasons for waiting that are decided here. They are the kubelet's.
const (
	CrashLoopBackOff  = "CrashLoopBackOff"
	PodInitializing   = "PodInitializing"
	ContainerCreating = "ContainerCreating"
)

// DeadlineExceeded is the Reason of a pod that had activeDeadlineSeconds.
const DeadlineExceeded = "DeadlineExceeded"

// Next makes the plan.
func Next(in Input) Plan {
	p := &planner{Input: in, plan: Plan{Waiting: map[string]Waiting{}}}
	p.decide()
	slices.SortStableFunc(p.plan.Actions, func(a, b Action) int { return cmp.Compare(a.Wave, b.Wave) })
	p.plan.Phase = p.phase()
	return p.plan
}

// planner makes one plan.
type planner struct {
	Input
	plan Plan
	wave int
	held bool // a container starts that those after it in the spec wait for
}

func (p *planner) decide() {
	switch {
	case p.Ending != "":
		p.terminate(p.Ending)
	case p.late():
		p.plan.Reason = DeadlineExceeded
		p.terminate("the pod was active longer than its activeDeadlineSeconds allow")
	case p.finished():
		p.plan.Lost = p.lost()
		p.terminate("")
	case p.restartsAll() != nil:
		because := p.restartsAll()
		p.plan.StartsOver = because.Name
		p.startOver(because)
	case p.Sandbox == nil || !p.Sandbox.Ready:
		p.renewSandbox()
	default:
		p.advance()
	}
}

// late says whether the pod has used its time up, and else when it will have.
func (p *planner) late() bool {
	deadline := Deadline(p.Pod, p.Began)
	if deadline.IsZero() {
		return false
	}
	if !p.Now.Before(deadline) {
		return true
	}
	p.lookAgain(deadline)
	return false
}

// Deadline is when a pod that began then has used its activeDeadlineSeconds up; zero if
// it has none.
func Deadline(pod *corev1.Pod, began time.Time) time.Time {
	limit := pod.Spec.ActiveDeadlineSeconds
	if limit == nil || began.IsZero() {
		return time.Time{}
	}
	return began.Add(time.Duration(*limit) * time.Second)
}

func (p *planner) lookAgain(at time.Time) {
	if p.plan.Again.IsZero() || at.Before(p.plan.Again) {
		p.plan.Again = at
	}
}

// do adds an action to the wave that is being made.
func (p *planner) do(a Action) {
	a.Wave = p.wave
	p.plan.Actions = append(p.plan.Actions, a)
}

// next begins another wave, if there is anything in this one.
func (p *planner) next() {
	if n := len(p.plan.Actions); n > 0 && p.plan.Actions[n-1].Wave == p.wave {
		p.wave++
	}
}

// here is the latest attempt in the sandbox that is there now, or nil.
func (p *planner) here(c *corev1.Container) *Container {
	if got := p.Containers[c.Name]; got != nil && p.Sandbox != nil && got.Sandbox == p.Sandbox.ID {
		return got
	}
	return nil
}

// finished says that no container of the pod will ever run again. Sidecars do
// not count: they end with the others.
func (p *planner) finished() bool {
	return p.initFailed() || p.lost() || p.allDone()
}

func (p *planner) allDone() bool {
	for i := range p.Pod.Spec.Containers {
		if c := &p.Pod.Spec.Containers[i]; !p.done(c) {
			return false
		}
	}
	return len(p.Pod.Spec.Containers) > 0
}

// done says that a container ended and stays so, in whichever sandbox.
func (p *planner) done(c *corev1.Container) bool {
	got := p.Containers[c.Name]
	return got != nil && got.State == Exited && ended(p.Pod, c, false, got) == stays
}

// initFailed says that an init container has failed for good.
func (p *planner) initFailed() bool {
	if p.initialized() {
		return false
	}
	for i := range p.Pod.Spec.InitContainers {
		c := &p.Pod.Spec.InitContainers[i]
		if got := p.here(c); got != nil && got.State == Exited && got.ExitCode != 0 && ended(p.Pod, c, true, got) == stays {
			return true
		}
	}
	return false
}

// initialized says that the init containers have done their work in this
// sandbox: a container that comes after them was made.
func (p *planner) initialized() bool {
	for i := range p.Pod.Spec.Containers {
		if p.here(&p.Pod.Spec.Containers[i]) != nil {
			return true
		}
	}
	return false
}

// lost says that the sandbox of a pod is gone which must not run twice.
func (p *planner) lost() bool {
	if p.Sandbox != nil && p.Sandbox.Ready || Policy(p.Pod) != corev1.RestartPolicyNever {
		return false
	}
	ran := p.Ran || p.Sandbox != nil && len(p.Containers) > 0
	return ran && !p.mayRestart() && !p.allDone()
}

// mayRestart says that a container has a policy or rules of its own, by which it
// may run again though the pod's policy is Never.
func (p *planner) mayRestart() bool {
	for i := range p.Pod.Spec.Containers {
		if c := &p.Pod.Spec.Containers[i]; c.RestartPolicy != nil && *c.RestartPolicy != corev1.ContainerRestartPolicyNever || len(c.RestartPolicyRules) > 0 {
			return true
		}
	}
	return false
}

// restartsAll is a container that ended in a way that restarts all of them, or
// nil.
func (p *planner) restartsAll() *corev1.Container {
	for _, list := range [][]corev1.Container{p.Pod.Spec.InitContainers, p.Pod.Spec.Containers} {
		for i := range list {
			if p.causes(&list[i]) {
				return &list[i]
			}
		}
	}
	return nil
}

// causes says that a container ended in a way that restarts all of them.
func (p *planner) causes(c *corev1.Container) bool {
	got := p.here(c)
	return got != nil && got.State == Exited && ended(p.Pod, c, false, got) == everything
}

// renewSandbox makes a sandbox, and what comes first in it. What still runs of the old
// one ends first, as it does with the pod: it knows nothing of what has happened, and
// may have something to save. Init containers run again, as what they prepared was the
// old sandbox's.
func (p *planner) renewSandbox() {
	const why = "the sandbox of the pod is gone, and is made anew"
	attempt := uint32(0)
	p.stopContainers(why)
	if p.Sandbox != nil {
		attempt = p.Sandbox.Attempt + 1
		p.do(Action{Verb: StopSandbox, ID: p.Sandbox.ID, Why: why})
		p.next()
	}
	p.do(Action{Verb: RunSandbox, Attempt: attempt})
	p.next()
	p.Sandbox = &Sandbox{Attempt: attempt, Ready: true, ID: "\x00new"}
	p.advance()
}
