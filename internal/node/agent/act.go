package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/holds"
	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/removal"
)

// perform carries out a plan, wave by wave. It ends with the first wave in which
// something fails: the next plan starts from what is there then.
func (w *worker) perform(ctx context.Context, p plan.Plan) error {
	by := removal.In(podspec.Grace(w.pod))
	if w.ending != nil {
		by = w.ending.By
	}
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

// performWave ends containers all at once, and does everything else in order. What
// fails in one container does not keep others from starting.
func (w *worker) performWave(ctx context.Context, wave []plan.Action, by *removal.Deadline) error {
	errs := make([]error, len(wave))
	var stops sync.WaitGroup
	for i, a := range wave {
		switch a.Verb {
		case plan.PreStop:
			w.view.Containers[a.Container].Care.Warn(ctx, by)
		case plan.Stop:
			w.eventOf(a.Container, corev1.EventTypeNormal, "Killing", w.killing(a))
			end := w.stop(ctx, a, by)
			stops.Go(func() { errs[i] = end(ctx) })
		}
	}
	w.slowly(stops.Wait)
	for i, a := range wave {
		if errs[i] == nil && ctx.Err() == nil {
			errs[i] = w.act(ctx, a)
		}
		if errs[i] != nil {
			errs[i] = fmt.Errorf("%s %s: %w", a.Verb, a.Container, errs[i])
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

func (w *worker) killing(a plan.Action) string {
	switch {
	case a.Why == "":
		return "Stopping container " + a.Container
	case w.ending != nil:
		return "Stopping container " + a.Container + ": " + a.Why
	}
	return "Container " + a.Container + " is ended: " + a.Why
}

// quiet is how long a pod says nothing of what it is at: most is done sooner, and the end
// of it tells all.
const quiet = time.Second

// slowly does what may take long, as a pull or the end of containers, and tells meanwhile
// how the pod is, and what changes: others have to know when a container is not ready any
// more. What is done uses nothing of the worker.
func (w *worker) slowly(do func()) {
	late, done, woken := time.NewTimer(quiet), make(chan struct{}), false
	defer late.Stop()
	go func() {
		do()
		close(done)
	}()
	for {
		select {
		case <-done:
			if woken {
				w.in.Wake() // whatever it was, it was not dealt with
			}
			return
		case <-w.in.Woken():
			woken = true
		case <-late.C:
		}
		w.tell(w.plan())
	}
}

// stop gives what ends a container, by a deadline of its own if it has one. Its preStop
// hook begins before that, as the care for a container is the worker's alone.
func (w *worker) stop(ctx context.Context, a plan.Action, by *removal.Deadline) func(context.Context) error {
	if a.Grace != nil && w.ending == nil {
		by = removal.In(*a.Grace)
	}
	c := w.view.Containers[a.Container]
	if c.Care != nil {
		var seen plan.Container
		c.Care.Tell(&seen)
		c.Why, c.Probed = seen.Sick, seen.Probed && w.ending == nil
		c.Care.Warn(ctx, by)
		return func(ctx context.Context) error { return c.Care.End(ctx, by) }
	}
	return func(ctx context.Context) error { return removal.StopContainer(ctx, w.a.cfg.Runtime, a.ID, by) }
}

// act does one thing. A container that was to stop has stopped by now.
func (w *worker) act(ctx context.Context, a plan.Action) error {
	switch a.Verb {
	case plan.RunSandbox:
		return w.runSandbox(ctx, a.Attempt)
	case plan.StopSandbox:
		return removal.StopSandbox(ctx, w.a.cfg.Runtime, a.ID)
	case plan.Start:
		return w.start(ctx, podspec.ContainerOf(w.pod, a.Container), a)
	case plan.PreStop, plan.Stop:
		return nil
	case plan.Remove:
		return w.purge(ctx, a)
	case plan.Resize:
		return w.resize(ctx, a)
	}
	return fmt.Errorf("nobody knows how to %s", a.Verb)
}

// purge removes all attempts at a container, the latest one last: one that is left would be
// taken for it.
func (w *worker) purge(ctx context.Context, a plan.Action) error {
	c := w.view.Containers[a.Container]
	attempts := slices.Clone(w.view.Extra) // of this container, or of others that have no use for them
	if c.Last != nil {
		attempts = append(attempts, c.Last.GetId())
	}
	for _, id := range append(attempts, a.ID) {
		if err := removal.RemoveContainer(ctx, w.a.cfg.Runtime, id); err != nil {
			return err
		}
	}
	w.view.Extra, c.Removed = nil, true
	return nil
}

// slot waits until something may start.
func (w *worker) slot(ctx context.Context) (release func(), err error) {
	held := heldOnce
	if w.slow {
		held = heldAgain
	}
	inTime, err := w.a.starts.Take(ctx, held)
	if err != nil {
		return nil, err
	}
	return func() { w.slow = !inTime() }, nil
}

func (w *worker) runSandbox(ctx context.Context, attempt uint32) error {
	release, err := w.slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := os.MkdirAll(w.spec.LogDir, 0o755); err != nil {
		return fmt.Errorf("make the log folder: %w", err)
	}
	if attempt > 0 {
		w.event(corev1.EventTypeNormal, "SandboxChanged", "The sandbox of the pod is gone. It is made anew, and its containers start again.")
	}
	if err := w.house(ctx); err != nil { // somebody may have removed it with the sandbox before
		return err
	}
	if err := w.nameable(); err != nil {
		return err
	}
	ctx, cancel := w.patient(ctx)
	defer cancel()
	began := time.Now()
	var resp *runtimeapi.RunPodSandboxResponse
	asks := &runtimeapi.RunPodSandboxRequest{Config: w.sandboxConfig(attempt), RuntimeHandler: w.place.Handler}
	w.slowly(func() { resp, err = w.a.cfg.Runtime.RunPodSandbox(ctx, asks) })
	w.a.stats.Sandbox(w.place.Handler, w.place.Class, time.Since(began), err)
	if err != nil {
		w.holds.Put("", &holds.NotStarted{})
		return w.told("FailedCreatePodSandBox", err)
	}
	delete(w.holds, "")
	_, warnings := podspec.ResolvConf(w.spec)
	for _, warn := range warnings {
		w.event(corev1.EventTypeWarning, warn.Reason, warn.Message)
	}
	// Only the address is needed before the next look at everything.
	answer, err := w.a.cfg.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: resp.GetPodSandboxId()})
	if err != nil {
		return fmt.Errorf("ask for its address: %w", err)
	}
	w.view.Box, w.spec.IPs = answer.GetStatus(), podspec.AddressesOf(answer.GetStatus())
	return w.outfit.WriteHosts()
}

// nameable says whether the kernel takes the name that the pod asks for. As with a kubelet the
// pod waits if not: the cluster's domain is a part of it, and may become another one.
func (w *worker) nameable() error {
	if w.pod.Spec.HostNetwork {
		return nil
	}
	_, err := podspec.KernelName(w.spec)
	if err == nil {
		return nil
	}
	w.holds.Put("", &holds.NotStarted{})
	return w.told("FailedCreatePodSandBox", err)
}

// patient is a context for what makes a sandbox. A pod that is to end waits for that: a
// runtime goes on with what it has begun, and nobody would know what to remove. An agent
// that ends does not wait: the next one asks for the same, and gets it.
func (w *worker) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandboxTimeout)
	go func() {
		select {
		case <-w.quit:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// resize gives a container that runs the resources of its spec.
func (w *worker) resize(ctx context.Context, a plan.Action) error {
	ct := podspec.ContainerOf(w.pod, a.Container)
	ctx, cancel := call(ctx)
	defer cancel()
	asks := podspec.Resize(w.spec, ct, a.ID)
	err := w.affords(ctx, a.Container, asks)
	if err == nil {
		_, err = w.a.cfg.Runtime.UpdateContainerResources(ctx, asks)
	}
	if err != nil {
		w.resizing.failed = w.wording(err)
		w.eventOf(a.Container, corev1.EventTypeWarning, "ResizeError", "container "+a.Container+": "+w.resizing.failed)
		return err
	}
	w.resizing.failed = ""
	s, err := w.view.Ask(ctx, a.ID)
	if err != nil || s == nil {
		return err
	}
	w.view.Containers[a.Container].Now = s
	return nil
}
