package agent

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/status"
	"fairlead.run/internal/node/tend"
)

// tell tells how the pod is, if that has changed.
func (w *worker) tell(p plan.Plan) {
	if w.leftOver() {
		return
	}
	w.tellPauses(p)
	_, before := w.shown.Get()
	now := status.Of(w.statusInput(p, before))
	same := before != nil && status.Equal(before, &now)
	to, detailed := w.a.cfg.Reporter.(Detailed)
	if !detailed {
		if !same {
			w.shown.Set(w.pod, &now)
			w.a.cfg.Changed(w.pod, now)
		}
		return
	}
	d := w.detail(p)
	if same && d.equal(w.said) {
		return
	}
	w.shown.Set(w.pod, &now)
	w.said = d
	to.Detail(w.pod, now, d)
}

// tellPauses tells, once for each end, why a container is not started at once.
func (w *worker) tellPauses(p plan.Plan) {
	for name, why := range p.Waiting {
		c := w.view.containers[name]
		if why.Reason != plan.CrashLoopBackOff || c == nil || c.paused {
			continue
		}
		c.paused = true
		w.event(corev1.EventTypeWarning, "BackOff", fmt.Sprintf("Container %s %s; it is started again after a pause of %s", name, describeExit(c), plan.Backoff(c.crashes)))
	}
}

func (w *worker) statusInput(p plan.Plan, before *corev1.PodStatus) status.Input {
	in := status.Input{
		Pod: w.pod, Previous: before, Plan: p, Sandbox: w.view.box, Containers: map[string]status.Container{},
		HostIPs: w.a.cfg.Node.IPs, Now: time.Now(), Started: w.record.Accepted,
		Waiting: map[string]corev1.ContainerStateWaiting{}, Runtime: w.a.cfg.Scheme, Conditions: w.conditions(p),
	}
	if w.refused != nil {
		in.Ended = &status.Ended{Reason: w.refused.Reason, Message: w.refused.Message}
		if w.refused.Rejected {
			in.Ended.Message = "Pod was rejected: " + w.refused.Message
		}
	}
	for name, c := range w.view.containers {
		var seen plan.Container
		if c.now != nil && stateOf(c.now.GetState()) == plan.Running {
			c.care.Tell(&seen)
		}
		in.Containers[name] = status.Container{
			Now: c.now, Last: c.last, Ready: seen.Ready, Started: seen.Up && !seen.Starting, Message: c.message, LastMessage: c.lastWords,
		}
	}
	for name, why := range w.waits {
		if name == "" {
			continue // the sandbox
		}
		in.Waiting[name] = corev1.ContainerStateWaiting{Reason: why.reason, Message: why.message}
	}
	return in
}

// noted passes on what happened beside a container.
func (w *worker) noted(n tend.Note) {
	w.event(corev1.EventTypeWarning, n.Reason, "container "+n.Container+": "+n.Message)
}

// event tells what happened to the pod. It may be called from any goroutine that
// works for it.
func (w *worker) event(kind, reason, message string) {
	w.a.cfg.Event(w.in.Pod(), kind, reason, message)
}
