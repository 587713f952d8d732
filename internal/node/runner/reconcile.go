package runner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/removal"
)

// What failed is tried again after a pause, which grows while it goes on failing.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 15 * time.Second
)

// reconcile compares the pod with what runs, and acts. It says when to look again
// if nothing happens; zero for never.
func (w *worker) reconcile(ctx context.Context) (again time.Time, err error) {
	if p := w.current().Phase; p != Running {
		return time.Time{}, nil
	}
	if err := w.look(ctx); err != nil {
		return time.Time{}, err
	}
	p := plan.Next(w.input(""))
	failed := w.perform(ctx, p)
	if failed == nil {
		failed = w.removeLost(ctx)
	}
	if ctx.Err() != nil {
		return time.Time{}, nil
	}
	w.settle(p, failed)
	if failed != nil {
		w.in.retry = min(max(2*w.in.retry, firstRetry), lastRetry)
		return time.Now().Add(w.in.retry), nil
	}
	w.in.retry = 0
	return p.Again, nil
}

// removeLost removes sandboxes that were replaced.
func (w *worker) removeLost(ctx context.Context) error {
	for len(w.lost) > 0 {
		if err := removal.RemovePod(ctx, w.r.cfg.Endpoint.Runtime, removal.Pod{ID: w.lost[0], By: removal.In(0)}); err != nil {
			return w.fail("remove its old sandbox", err)
		}
		w.lost = w.lost[1:]
	}
	return nil
}

// settle tells what the pod is now.
func (w *worker) settle(p plan.Plan, err error) {
	phase, ready, message := Running, plan.Ready(w.input("")), ""
	switch {
	case err != nil:
		message = err.Error()
	case p.Phase == corev1.PodSucceeded:
		phase = Succeeded
	case p.Phase == corev1.PodFailed:
		phase, message = Failed, w.whyFailed(p)
	default:
		message = cmp.Or(w.whyWaiting(p), w.whyNotReady())
	}
	w.change(func(s *Status) { s.Phase, s.Ready, s.Message = phase, ready, message })
}

func (w *worker) whyFailed(p plan.Plan) string {
	if p.Reason != "" {
		return p.Reason + ": it ran longer than activeDeadlineSeconds"
	}
	var why []string
	for _, c := range w.containers {
		if c.exit.GetExitCode() != 0 && !plan.Sidecar(c.spec) {
			why = append(why, "container "+c.spec.Name+" "+w.describeExit(c))
		}
	}
	slices.Sort(why)
	return strings.Join(why, "; ")
}

// whyWaiting tells of the container that waits longest for its restart.
func (w *worker) whyWaiting(p plan.Plan) string {
	message, last := "", time.Time{}
	for name, waiting := range p.Waiting {
		c := w.containers[name]
		if waiting.Reason != plan.CrashLoopBackOff || c == nil || waiting.Until.Before(last) {
			continue
		}
		last = waiting.Until
		message = fmt.Sprintf("container %s: %s; it is restarted after a pause of %s", name, w.describeExit(c), plan.Backoff(c.crashes))
	}
	return message
}

// describeExit says how a container ended, as one reads it.
func (w *worker) describeExit(c *container) string {
	text := fmt.Sprintf("ended with exit code %d", c.exit.GetExitCode())
	if c.why != "" {
		text += ", as " + c.why
	}
	if r := c.exit.GetReason(); r != "" && r != "Completed" && r != "Error" {
		text += " (" + r + ")"
	}
	if m := w.terminationMessage(c); m != "" {
		text += ": " + m
	} else if m := c.exit.GetMessage(); m != "" {
		text += ": " + m
	}
	return text
}
