package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/hook"
	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/probe"
)

// care is what is done beside one attempt at a container: its hooks and probes.
// None of it is waited for where it could hold up the pod.
type care struct {
	postStart *task        // nil if it has none
	watch     *probe.Watch // nil if it has no probes
	leave     context.CancelFunc
	preStop   *task  // nil before it was begun
	why       string // it was ended, if it was because of a hook or probe
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

// release ends the probes and the postStart hook. What they have told stays known.
func (c *care) release() {
	if c.leave != nil {
		c.leave()
	}
}

// abandon ends the preStop hook, too.
func (c *care) abandon() {
	c.release()
	if c.preStop != nil {
		c.preStop.cancel()
	}
}

// tell says how a container is that runs.
func (c *container) tell(seen *plan.Container) {
	seen.Warned = c.care.preStop != nil
	switch start := c.care.postStart; {
	case start.runs():
		seen.Starting = true
		return
	case start != nil && start.err != nil:
		seen.Sick = "its postStart hook failed: " + start.err.Error()
		return
	}
	seen.Up, seen.Ready = true, true
	if c.care.watch == nil {
		return
	}
	s := c.care.watch.Status()
	seen.Up, seen.Ready = s.Up, s.Ready
	if s.Failed != "" {
		seen.Ready, seen.Sick, seen.Grace = false, s.Message, probe.Of(c.spec, s.Failed).TerminationGracePeriodSeconds
	}
}

// lacks is what a container that runs has not done yet; empty if it is ready.
func (c *container) lacks() string {
	var seen plan.Container
	switch c.tell(&seen); {
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
	return cmp.Or(c.care.watch.Status().Message, waits)
}

// target is what hooks and probes ask. Commands of probes see the container's
// variables, as its own command does.
func (w *worker) target(c *container) (probe.Target, error) {
	t := probe.Target{Container: c.spec.DeepCopy(), ID: c.id, Executor: w.r.cfg.Endpoint.Runtime}
	if addresses := w.addresses(); len(addresses) > 0 {
		t.Host = addresses[0]
	}
	for _, k := range []probe.Kind{probe.Startup, probe.Liveness, probe.Readiness} {
		p := probe.Of(t.Container, k)
		if p == nil || p.Exec == nil {
			continue
		}
		command, err := podspec.Expand(w.spec, c.spec, p.Exec.Command)
		if err != nil {
			return t, err
		}
		p.Exec.Command = command
	}
	return t, nil
}

// attend begins the care for a container that was just started: its postStart
// hook, and after that its probes.
func (w *worker) attend(ctx context.Context, c *container) error {
	h := hook.PostStart(c.spec)
	if h == nil && !probe.Any(c.spec) {
		return nil
	}
	t, err := w.target(c)
	if err != nil {
		return err
	}
	// It goes on until the container ends, whoever has started it.
	ctx, leave := context.WithCancel(context.WithoutCancel(ctx))
	c.care.leave = leave
	if h != nil {
		c.care.postStart = &task{done: make(chan struct{}), cancel: leave}
	}
	if probe.Any(c.spec) {
		c.care.watch = probe.NewWatch(t, time.Now(), w.r.slots, probe.Told{
			Changed: w.in.wake,
			Warned: func(k probe.Kind, text string) {
				w.note("container %s: its %s probe passes, but %s", c.spec.Name, k, text)
			},
		})
	}
	begun := c.care
	w.tasks.Go(func() {
		if start := begun.postStart; start != nil {
			start.err = w.startHook(ctx, &t, h)
			close(start.done)
			w.in.wake()
			if start.err != nil {
				return
			}
		}
		if begun.watch != nil {
			_ = begun.watch.Run(ctx) // it ends with the context
		}
	})
	return nil
}

// startHook runs a postStart hook. It has not failed if it was its container that
// ended.
func (w *worker) startHook(ctx context.Context, t *probe.Target, h *corev1.LifecycleHandler) error {
	err := hook.Run(ctx, t, h)
	if err != nil && (ctx.Err() != nil || hasEnded(ctx, w.r.cfg.Endpoint.Runtime, t.ID)) {
		return nil
	}
	return err
}

// warn begins the preStop hook of a container, unless that was done before. It has
// as long as the container has to end.
func (w *worker) warn(ctx context.Context, c *container, grace int64) *task {
	h := hook.PreStop(c.spec)
	if c.care.preStop != nil || h == nil || grace <= 0 {
		return c.care.preStop
	}
	// Whoever asked may leave: then the hook goes on, and the next one waits for it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(grace)*time.Second)
	begun, id, name := &task{done: make(chan struct{}), cancel: cancel}, c.id, c.spec.Name
	c.care.preStop = begun
	t, err := w.target(c)
	w.tasks.Go(func() {
		defer close(begun.done)
		defer cancel()
		if err == nil && hasEnded(ctx, w.r.cfg.Endpoint.Runtime, id) {
			return // by itself, and there is nothing left to warn
		}
		if err == nil {
			err = hook.Run(ctx, &t, h)
		}
		if begun.err = err; err != nil && !errors.Is(ctx.Err(), context.Canceled) {
			w.note("container %s: its preStop hook failed: %v", name, err)
		}
	})
	return begun
}

// hasEnded says that a container is known not to run any more.
func hasEnded(ctx context.Context, client runtimeapi.RuntimeServiceClient, id string) bool {
	resp, err := client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	return err == nil && resp.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
}

// leastGrace is how many seconds a container has to end after its preStop hook,
// even if that took all of its time. It is the kubelet's.
const leastGrace = 2

// end ends a container: its preStop hook, and then what is left of its time.
func (w *worker) end(ctx context.Context, a plan.Action, how Removal) error {
	c := w.containers[a.Container]
	if a.Grace != nil {
		how.Grace = *a.Grace
	}
	c.care.release()
	began := time.Now()
	if t := w.warn(ctx, c, how.Grace); t != nil {
		select {
		case <-t.done:
		case <-how.Now:
			t.cancel()
		case <-ctx.Done():
			return ctx.Err()
		}
		how.Grace = max(how.Grace-int64(time.Since(began)/time.Second), leastGrace)
	}
	return stopContainer(ctx, w.r.cfg.Endpoint.Runtime, a.ID, how)
}

func (w *worker) note(format string, args ...any) {
	w.r.cfg.Observer.Note(fmt.Sprintf("pod %s: "+format, append([]any{w.plan.Pod.Key()}, args...)...))
}

// whyNotReady tells of the first container that runs and is not ready.
func (w *worker) whyNotReady() string {
	spec := &w.spec.Pod.Spec
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			c := w.containers[list[i].Name]
			if c == nil || c.exit != nil || c.removed {
				continue
			}
			if lacks := c.lacks(); lacks != "" {
				return "container " + c.spec.Name + ": " + lacks
			}
		}
	}
	return ""
}
