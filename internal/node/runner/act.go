package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/removal"
)

// perform carries out a plan, wave by wave. It ends with the first wave in which
// something fails: the next plan starts from what is there then.
func (w *worker) perform(ctx context.Context, p plan.Plan) error {
	for _, a := range p.Actions {
		if a.Verb == plan.Stop && a.Why != "" && p.Reason == "" {
			w.note("container %s is ended: %s", a.Container, a.Why)
		}
	}
	return w.performBy(ctx, p, removal.In(podspec.Grace(w.spec.Pod)))
}

// performBy has what ends do so by a deadline: what ends in an earlier wave has a
// part of the time of all.
func (w *worker) performBy(ctx context.Context, p plan.Plan, by *removal.Deadline) error {
	for actions := p.Actions; len(actions) > 0; {
		n := 1
		for n < len(actions) && actions[n].Wave == actions[0].Wave {
			n++
		}
		if err := w.performWave(ctx, actions[:n], by); err != nil {
			return err
		}
		actions = actions[n:]
	}
	return nil
}

// performWave ends containers all at once, and does everything else in order.
func (w *worker) performWave(ctx context.Context, wave []plan.Action, by *removal.Deadline) error {
	errs := make([]error, len(wave))
	var stops sync.WaitGroup
	for i, a := range wave {
		switch a.Verb {
		case plan.PreStop:
			w.containers[a.Container].care.Warn(ctx, by)
		case plan.Stop:
			stops.Go(func() { errs[i] = w.end(ctx, a, by) })
		}
	}
	stops.Wait()
	for i, a := range wave {
		if errs[i] != nil {
			errs[i] = w.fail("stop container "+a.Container, errs[i])
			continue
		}
		errs[i] = w.act(ctx, a)
	}
	return errors.Join(errs...)
}

// act does one thing. A container that was to end has ended by now.
func (w *worker) act(ctx context.Context, a plan.Action) error {
	runtime := w.r.cfg.Endpoint.Runtime
	switch a.Verb {
	case plan.RunSandbox:
		return w.inTurn(ctx, func() error { return w.startSandbox(ctx, a.Attempt) })
	case plan.StopSandbox:
		if _, err := runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: a.ID}); err != nil {
			return w.fail("stop its sandbox", err)
		}
		w.box = &plan.Sandbox{ID: w.box.ID, Attempt: w.box.Attempt}
		return nil
	case plan.Start:
		return w.inTurn(ctx, func() error { return w.startContainer(ctx, w.containerSpec(a.Container)) })
	case plan.PreStop:
		return nil // it was begun with its wave
	case plan.Stop:
		return w.noteEnd(ctx, w.containers[a.Container])
	case plan.Remove:
		if _, err := runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: a.ID}); err != nil {
			return w.fail("remove container "+a.Container, err)
		}
		w.containers[a.Container].removed = true
		return nil
	}
	return w.fail("act", fmt.Errorf("nobody knows how to %s", a.Verb))
}

// end ends a container, by a deadline of its own if it has one.
func (w *worker) end(ctx context.Context, a plan.Action, by *removal.Deadline) error {
	if a.Grace != nil {
		by = removal.In(*a.Grace)
	}
	if care := w.containers[a.Container].care; care != nil {
		return care.End(ctx, by)
	}
	return removal.StopContainer(ctx, w.r.cfg.Endpoint.Runtime, a.ID, by) // one that could not be started
}

// inTurn does something when not too many are at it.
func (w *worker) inTurn(ctx context.Context, do func() error) error {
	select {
	case w.r.starts <- struct{}{}:
		defer func() { <-w.r.starts }()
		return do()
	case <-ctx.Done():
		return w.fail("wait for others that start", ctx.Err())
	}
}

// noteEnd reads how a container ended that was told to, and remembers what for.
func (w *worker) noteEnd(ctx context.Context, c *container) error {
	if c.exit == nil {
		var seen plan.Container
		c.care.Tell(&seen)
		c.why = seen.Sick
	}
	return w.noteExit(ctx, c, true)
}

func (w *worker) containerSpec(name string) *corev1.Container {
	spec := &w.spec.Pod.Spec
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	panic("runner: a plan names container " + name + ", which the pod does not have")
}

// startContainer starts the next attempt, and tells of it if it is not the first.
func (w *worker) startContainer(ctx context.Context, ct *corev1.Container) error {
	before := w.containers[ct.Name]
	if before == nil {
		return w.launch(ctx, ct)
	}
	exit := before.exit
	w.r.cfg.Observer.Note(fmt.Sprintf("pod %s: container %s %s; restarting it", w.plan.Pod.Key(), ct.Name, w.describeExit(before)))
	if err := w.launch(ctx, ct); err != nil {
		// A launch that failed is one more crash, and its exit stays known.
		before.exit = &runtimeapi.ContainerStatus{ExitCode: exit.GetExitCode(), FinishedAt: time.Now().UnixNano(), Reason: "StartError", Message: err.Error()}
		before.crashes++
		return err
	}
	w.removeOld(ctx, before)
	w.change(func(s *Status) { s.Restarts++ })
	return nil
}

// removeOld removes the attempt before this one, and its log.
func (w *worker) removeOld(ctx context.Context, c *container) {
	if c.old == "" || c.old == c.id {
		return
	}
	if _, err := w.r.cfg.Endpoint.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.old}); err == nil {
		c.old = ""
	}
}
