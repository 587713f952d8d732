package tend

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/hook"
	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/probe"
	"fairlead.run/internal/node/removal"
	"fairlead.run/internal/node/slots"
)

// Pod is what the containers of one pod have in common.
type Pod struct {
	Spec    *podspec.Context // with the addresses of the pod
	Runtime runtimeapi.RuntimeServiceClient
	Slots   *slots.Slots
	// Wake is called when what a container is told to be has changed. It must not
	// wait, nor must Told.
	Wake func()
	Told func(Note)
	// Tried hears of each probe, and how long it took; nil if nobody listens.
	Tried func(container string, k probe.Kind, o probe.Outcome, took time.Duration)

	tasks sync.WaitGroup
}

// Note is something to know of a container, with the reason of the kubelet's event.
type Note struct {
	Container, Reason, Message string
}

// The reasons.
const (
	ProbeWarning    = "ProbeWarning"
	Unhealthy       = "Unhealthy"
	PostStartFailed = "FailedPostStartHook"
	HTTPFallback    = "LifecycleHTTPFallback"
	PreStopFailed   = "FailedPreStopHook"
)

// Attempt is a container that has just been started, or that was found running.
type Attempt struct {
	Container *corev1.Container
	ID        string
	Began     time.Time
	// Found says that somebody else has started it, and seen to its postStart hook unless
	// it is Unhooked: that is run then, maybe for the second time, as Kubernetes has it.
	Found, Unhooked bool
	// Started and Ready are how its probes were told to be then. They are asked anew,
	// and it stays what it was until they have answered.
	Started, Ready bool
}

// Care is what is done for one attempt. One that is nil does nothing, for a container
// that has neither hooks nor probes and is up and ready when it runs.
type Care struct {
	pod *Pod
	Attempt
	postStart *task        // nil if there is none
	watch     *probe.Watch // nil if there are no probes
	leave     context.CancelFunc
	preStop   *task // nil before it was begun
}

// task is a hook that was begun.
type task struct {
	done   chan struct{}
	err    error // once done is closed
	cancel context.CancelFunc
}

func (t *task) runs() bool {
	if t == nil {
		return false
	}
	select {
	case <-t.done:
		return false
	default:
		return true
	}
}

// await waits for a hook that may have been begun with more time than is left now.
func (t *task) await(ctx context.Context, by *removal.Deadline) {
	within, cut := by.Within(ctx)
	defer cut()
	select {
	case <-t.done:
		return
	case <-within.Done():
	}
	if ctx.Err() != nil {
		return // it goes on, and whoever asks next waits for it
	}
	if by.Left() > 0 {
		select { // its own time may end now, too, and then it says so
		case <-t.done:
			return
		case <-time.After(time.Second):
		}
	}
	t.cancel()
}

// Begin begins the care for an attempt: its postStart hook, and after that its
// probes. It goes on until Release, whoever has asked.
func (p *Pod) Begin(ctx context.Context, a Attempt) *Care {
	c := &Care{pod: p, Attempt: a, leave: func() {}}
	h := hook.PostStart(a.Container)
	if a.Found && !a.Unhooked {
		h = nil
	}
	if h == nil && !probe.Any(a.Container) {
		return c
	}
	t := p.target(ctx, a)
	ctx, c.leave = context.WithCancel(context.WithoutCancel(ctx))
	if h != nil {
		c.postStart = &task{done: make(chan struct{}), cancel: c.leave}
	}
	if probe.Any(a.Container) {
		c.watch = probe.NewWatch(t, a.Began, p.Slots, probe.Told{
			Changed: p.Wake,
			Tried: func(k probe.Kind, o probe.Outcome, took time.Duration) {
				if p.Tried != nil {
					p.Tried(a.Container.Name, k, o, took)
				}
			},
			Warned: func(k probe.Kind, text string) {
				p.Told(Note{a.Container.Name, ProbeWarning, "its " + string(k) + " probe passes, but " + text})
			},
			Failed: func(k probe.Kind, text string) {
				p.Told(Note{a.Container.Name, Unhealthy, "its " + string(k) + " probe failed: " + text})
			},
			Errored: func(k probe.Kind, text string) {
				p.Told(Note{a.Container.Name, Unhealthy, "its " + string(k) + " probe cannot be made, and counts neither way: " + text})
			},
		})
	}
	if c.watch != nil && a.Found {
		c.watch.Assume(a.Started, a.Ready)
	}
	p.tasks.Go(func() { c.run(ctx, &t, h) })
	return c
}

func (c *Care) run(ctx context.Context, t *probe.Target, h *corev1.LifecycleHandler) {
	if c.postStart != nil {
		c.postStart.err = c.pod.startHook(ctx, t, h)
		close(c.postStart.done)
		c.pod.Wake()
		if err := c.postStart.err; err != nil {
			c.pod.Told(Note{c.Container.Name, PostStartFailed, "its postStart hook failed: " + err.Error()})
			return
		}
	}
	if c.watch != nil {
		_ = c.watch.Run(ctx) // it ends with the context
	}
}

// startHook runs a postStart hook. It has not failed if it was its container that
// ended.
func (p *Pod) startHook(ctx context.Context, t *probe.Target, h *corev1.LifecycleHandler) error {
	err := p.runHook(ctx, t, h)
	if err != nil && (ctx.Err() != nil || removal.HasEnded(ctx, p.Runtime, t.ID)) {
		return nil
	}
	return err
}

// How often a hook is tried again that did not reach the runtime, and how often if the runtime
// answers other questions.
const (
	hookEvery = time.Second
	hookTries = 3
)

// runHook runs a hook, and again for as long as the runtime is away: its container runs on
// meanwhile, and is not to end for that, or without it. So it may run twice, as Kubernetes has it.
func (p *Pod) runHook(ctx context.Context, t *probe.Target, h *corev1.LifecycleHandler) error {
	for tries := 0; ; {
		err := hook.Run(ctx, t, h)
		if !errors.Is(err, hook.ErrAway) {
			return err
		}
		if _, away := p.Runtime.Version(ctx, &runtimeapi.VersionRequest{}); away == nil {
			if tries++; tries > hookTries {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(hookEvery):
		}
	}
}

// target is what hooks and probes ask. Commands of probes see the container's
// variables, as its own command does; where one cannot be had any more, those that its
// spec has in words, which is all that a kubelet knows here. The container runs well
// without, and is not to end for it.
func (p *Pod) target(ctx context.Context, a Attempt) probe.Target {
	t := probe.Target{Container: a.Container.DeepCopy(), ID: a.ID, Executor: p.Runtime}
	t.Plain = func(address string) {
		p.Told(Note{a.Container.Name, HTTPFallback, "its HTTPS lifecycle hook " + address + " answered by HTTP, and was asked again by HTTP; set scheme: HTTP for it"})
	}
	if addresses := p.Spec.Addresses(); len(addresses) > 0 {
		t.Host = addresses[0]
	}
	for _, k := range []probe.Kind{probe.Startup, probe.Liveness, probe.Readiness} {
		one := probe.Of(t.Container, k)
		if one == nil || one.Exec == nil {
			continue
		}
		command, err := podspec.Expand(ctx, p.Spec, a.Container, one.Exec.Command)
		if err != nil {
			command = podspec.ExpandPlain(a.Container, one.Exec.Command)
		}
		one.Exec.Command = command
	}
	return t
}

// Tell says how a container is that runs.
func (c *Care) Tell(seen *plan.Container) {
	seen.Up, seen.Ready = true, true
	if c == nil {
		return
	}
	seen.Warned = c.preStop != nil
	switch start := c.postStart; {
	case start.runs():
		seen.Starting, seen.Up, seen.Ready = true, false, false
		return
	case start != nil && start.err != nil:
		seen.Up, seen.Ready = false, false
		seen.Sick = "its postStart hook failed: " + start.err.Error()
		return
	}
	if c.watch == nil {
		return
	}
	s := c.watch.Status()
	seen.Up, seen.Ready = s.Up, s.Ready
	if s.Failed != "" {
		seen.Ready, seen.Sick, seen.Probed, seen.Grace = false, s.Message, true, probe.Of(c.Container, s.Failed).TerminationGracePeriodSeconds
	}
}

// Lacks is what a container that runs has not done yet; empty if it is ready.
func (c *Care) Lacks() string {
	var seen plan.Container
	switch c.Tell(&seen); {
	case seen.Starting:
		return "its postStart hook runs"
	case seen.Ready:
		return ""
	case seen.Sick != "":
		return seen.Sick
	}
	waits := "its startup probe has not passed"
	if seen.Up {
		waits = "its readiness probe has not passed"
	}
	return cmp.Or(c.watch.Status().Message, waits)
}

// Starts says that the postStart hook has not ended.
func (c *Care) Starts() bool { return c != nil && c.postStart.runs() }

// Leave says that the pod is ending, though this container may be among the last to be
// stopped. Its probes only ask from now on whether it is ready.
func (c *Care) Leave() {
	if c != nil && c.watch != nil {
		c.watch.Leave()
	}
}

// Release ends the probes and the postStart hook. What they have told stays known.
func (c *Care) Release() {
	if c != nil {
		c.leave()
	}
}

// Abandon ends the preStop hook, too.
func (c *Care) Abandon() {
	c.Release()
	if c != nil && c.preStop != nil {
		c.preStop.cancel()
	}
}

// Warn begins the preStop hook, unless that was done before. It has until the
// deadline.
func (c *Care) Warn(ctx context.Context, by *removal.Deadline) {
	if c == nil {
		return
	}
	h := hook.PreStop(c.Container)
	if c.preStop != nil || h == nil || by.Left() == 0 {
		return
	}
	// Whoever asked may leave: then the hook goes on, and the next one waits for it.
	ctx, cancel := by.Within(context.WithoutCancel(ctx))
	begun := &task{done: make(chan struct{}), cancel: cancel}
	c.preStop = begun
	t := c.pod.target(ctx, c.Attempt)
	c.pod.tasks.Go(func() {
		defer close(begun.done)
		defer cancel()
		if removal.HasEnded(ctx, c.pod.Runtime, c.ID) {
			return // by itself, and there is nothing left to warn
		}
		err := c.pod.runHook(ctx, &t, h)
		if begun.err = err; err != nil && !errors.Is(ctx.Err(), context.Canceled) {
			c.pod.Told(Note{c.Container.Name, PreStopFailed, "its preStop hook failed: " + err.Error()})
		}
	})
}

// End ends the container: its preStop hook, and then what is left of its time. Until it
// has ended, its readiness is looked at.
func (c *Care) End(ctx context.Context, by *removal.Deadline) error {
	if c.postStart.runs() {
		c.Release()
	}
	c.Leave()
	c.Warn(ctx, by)
	if c.preStop != nil {
		c.preStop.await(ctx, by)
		by.AfterHook()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err := removal.StopContainer(ctx, c.pod.Runtime, c.ID, by)
	if err == nil {
		c.Release()
	}
	return err
}

// Wait waits until nothing is under way any more. Everything has to be released or
// abandoned first.
func (p *Pod) Wait() { p.tasks.Wait() }
