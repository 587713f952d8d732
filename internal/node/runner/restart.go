package runner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The kubelet's backoff: the first restart comes at once, then each waits
// twice as long as the one before. A container that ran for long enough starts
// over.
const (
	firstBackoff = 10 * time.Second
	maxBackoff   = 5 * time.Minute
	forgetAfter  = 10 * time.Minute
)

// Backoff is how long to wait before a restart, after so many crashes in a row.
func Backoff(crashes int) time.Duration {
	if crashes <= 1 {
		return 0
	}
	wait := firstBackoff
	for range crashes - 2 {
		if wait *= 2; wait >= maxBackoff {
			return maxBackoff
		}
	}
	return wait
}

func policyOf(p *corev1.Pod) corev1.RestartPolicy {
	if p.Spec.RestartPolicy == "" {
		return corev1.RestartPolicyAlways
	}
	return p.Spec.RestartPolicy
}

// ShouldRestart applies a restart policy to an exit code.
func ShouldRestart(policy corev1.RestartPolicy, code int32) bool {
	return policy == corev1.RestartPolicyAlways || (policy == corev1.RestartPolicyOnFailure && code != 0)
}

// reconcile compares the pod with what runs, and acts. A container that cannot
// be restarted now is tried again later.
func (w *worker) reconcile(ctx context.Context, states map[string]runtimeapi.ContainerState) error {
	if p := w.current().Phase; p != Running {
		return nil
	}
	pod := w.spec.Pod
	ready, waiting, message := 0, false, ""
	for i := range pod.Spec.Containers {
		c := w.containers[pod.Spec.Containers[i].Name]
		state, known := states[c.id]
		if c.exit == nil && known && state != runtimeapi.ContainerState_CONTAINER_EXITED {
			ready++
			continue
		}
		if err := w.noteExit(ctx, c, known); err != nil {
			return err
		}
		if !ShouldRestart(policyOf(pod), c.exit.GetExitCode()) {
			continue
		}
		waiting = true
		wait := Backoff(c.crashes) - time.Since(time.Unix(0, c.exit.GetFinishedAt()))
		if wait > 0 {
			message = fmt.Sprintf("container %s: %s; it is restarted after a pause of %s", c.spec.Name, w.describeExit(c), Backoff(c.crashes))
			continue
		}
		if err := w.restart(ctx, c); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			message = err.Error()
			continue
		}
		ready++
	}
	w.settle(ready, waiting, message)
	return nil
}

// noteExit reads how a container ended, once.
func (w *worker) noteExit(ctx context.Context, c *container, known bool) error {
	if c.exit != nil {
		return nil
	}
	exit := &runtimeapi.ContainerStatus{ExitCode: 137, Reason: "Gone", Message: "the container was removed by somebody else", FinishedAt: time.Now().UnixNano()}
	if known {
		resp, err := w.r.cfg.Endpoint.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.id})
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return w.fail("ask how container "+c.spec.Name+" ended", err)
		}
		exit = resp.GetStatus()
	}
	c.exit = exit
	c.endLog()
	c.crashes++
	if time.Duration(exit.GetFinishedAt()-exit.GetStartedAt()) >= forgetAfter {
		c.crashes = 1
	}
	return nil
}

func (w *worker) restart(ctx context.Context, c *container) error {
	w.r.cfg.Observer.Note(fmt.Sprintf("pod %s: container %s %s; restarting it", w.plan.Pod.Key(), c.spec.Name, w.describeExit(c)))
	exit := c.exit
	err := w.launch(ctx, c.spec)
	if err != nil {
		// A launch that failed is one more crash, and its exit stays known.
		c.exit = &runtimeapi.ContainerStatus{ExitCode: exit.GetExitCode(), FinishedAt: time.Now().UnixNano(), Reason: "StartError", Message: err.Error()}
		c.crashes++
		return err
	}
	w.removeOld(ctx, c)
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

// settle decides the pod's phase.
func (w *worker) settle(ready int, waiting bool, message string) {
	phase := Running
	if ready == 0 && !waiting {
		phase = Succeeded
		var why []string
		for _, c := range w.containers {
			if c.exit.GetExitCode() != 0 {
				phase = Failed
				why = append(why, "container "+c.spec.Name+" "+w.describeExit(c))
			}
		}
		slices.Sort(why)
		message = strings.Join(why, "; ")
	}
	w.change(func(s *Status) { s.Phase, s.Ready, s.Message = phase, ready, message })
}

// describeExit says how a container ended, as one reads it.
func (w *worker) describeExit(c *container) string {
	text := fmt.Sprintf("ended with exit code %d", c.exit.GetExitCode())
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
