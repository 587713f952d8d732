package agent

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/errtext"
	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/probe"
	"fairlead.run/internal/node/shown"
	"fairlead.run/internal/node/status"
	"fairlead.run/internal/node/tally"
	"fairlead.run/internal/node/tend"
	"fairlead.run/internal/node/view"
)

// tell tells how the pod is, if that has changed.
func (w *worker) tell(p plan.Plan) {
	if w.leftOver() {
		return
	}
	w.tellPauses(p)
	running := w.view.Running()
	w.logs.Store(&running)
	was, before := w.shown.Get()
	in := w.statusInput(p, before)
	now := status.Of(in)
	if status.Terminal(now.Phase) && !w.stray && !status.Alive(in) && w.guest.Rest() {
		poke(w.a.poked) // for those that are behind it
	}
	same := before != nil && !w.shown.Found() && status.Equal(before, &now)
	if before != nil && before.Phase == corev1.PodPending && now.Phase == corev1.PodRunning {
		w.a.stats.Pod(w.record.Accepted)
	}
	if same && was != w.pod { // something that no status has is new, as its priority
		w.shown.Set(w.pod, before)
	}
	to, detailed := w.a.cfg.Reporter.(Detailed)
	if !detailed {
		if !same {
			w.shown.Set(w.pod, &now)
			w.a.cfg.Changed(w.pod, now)
		}
		return
	}
	d := shown.DetailOf(w.pod, w.view, p)
	if same && d.Equal(w.said) {
		return
	}
	w.shown.Set(w.pod, &now)
	w.said = d
	to.Detail(w.pod, now, d)
}

// tellPauses tells, once for each end, why a container is not started at once.
func (w *worker) tellPauses(p plan.Plan) {
	for name, why := range p.Waiting {
		c := w.view.Containers[name]
		if why.Reason != plan.CrashLoopBackOff || c == nil || c.Paused {
			continue
		}
		c.Paused = true
		w.eventOf(name, corev1.EventTypeWarning, "BackOff", fmt.Sprintf("Container %s %s; it is started again after a pause of %s", name, view.DescribeExit(c), why.Pause))
	}
}

func (w *worker) statusInput(p plan.Plan, before *corev1.PodStatus) status.Input {
	in := status.Input{
		Pod: w.pod, Previous: before, Plan: p, Sandbox: w.view.Box, Containers: w.view.Statuses(),
		HostIPs: w.a.cfg.Node.IPs(), Now: time.Now(), Started: w.record.Accepted,
		Waiting: w.holds.Waiting(), Runtime: w.a.cfg.Scheme, Conditions: w.conditions(p),
	}
	if room, ok := w.a.cfg.Room.(Outfitter); ok {
		in.Devices = room.Health
	}
	if w.refused != nil {
		in.Ended = &status.Ended{Reason: w.refused.Reason, Message: w.refused.Message}
		if w.refused.Rejected {
			in.Ended.Message = "Pod was rejected: " + w.refused.Message
		}
	}
	return in
}

// noted passes on what happened beside a container.
func (w *worker) noted(n tend.Note) {
	w.eventOf(n.Container, corev1.EventTypeWarning, n.Reason, "container "+n.Container+": "+n.Message)
}

// tried counts a probe.
func (w *worker) tried(container string, k probe.Kind, o probe.Outcome, took time.Duration) {
	p := w.in.Pod()
	w.a.stats.Probes.Add(tally.Probe{
		Namespace: p.Namespace, Pod: p.Name, UID: string(p.UID), Container: container, Type: strings.ToUpper(string(k[:1])) + string(k[1:]),
	}, map[probe.Outcome]string{probe.Success: tally.Successful, probe.Failure: tally.Failed, probe.Unknown: tally.Unknown}[o], took)
}

// event tells what happened to the pod. It may be called from any goroutine that
// works for it.
func (w *worker) event(kind, reason, message string) {
	w.a.cfg.Event(w.in.Pod(), kind, reason, message)
}

// eventOf tells what happened to a container, in the same way.
func (w *worker) eventOf(container, kind, reason, message string) {
	pod := w.in.Pod()
	if to, ok := w.a.cfg.Reporter.(Precise); ok {
		to.ContainerEvent(pod, ContainerEvent{Path: podspec.FieldPath(pod, container), Kind: kind, Reason: reason, Message: message})
		return
	}
	w.a.cfg.Event(pod, kind, reason, message)
}

// trouble tells what could not be done, to who wants to know.
func (w *worker) trouble(err error) {
	to, ok := w.a.cfg.Reporter.(Detailed)
	pod, st := w.shown.Get()
	text := errtext.Stable(err.Error())
	if !ok || pod == nil || w.said.Trouble == text {
		return
	}
	w.said.Trouble = text
	to.Detail(pod, *st, w.said)
}
