package foreground

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/logs"
	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/shown"
)

// Phase is where a pod stands.
type Phase string

// The phases. Pending goes to Running, and Running to one of the others.
const (
	Pending   Phase = "Pending"
	Running   Phase = "Running"
	Succeeded Phase = "Succeeded"
	Failed    Phase = "Failed"
)

// Status is a pod as people see it.
type Status struct {
	Namespace, Name string
	Class, Handler  string
	Addresses       []string
	Phase           Phase
	Ready, Total    int // containers that are ready, of all that run on
	Restarts        int
	Message         string // why it failed, or what it waits for
}

// Observer is told what happens. Calls come from several goroutines.
type Observer interface {
	// Note tells what a person may want to know.
	Note(text string)
	// Changed tells a pod's new status.
	Changed(Status)
	// Line tells a line of a container's output.
	Line(namespace, pod, container string, l logs.Line)
}

// take takes over what the agent says of a pod that has started, or has not.
func (s *Status) take(p *corev1.Pod, now corev1.PodStatus, d shown.Detail, started bool) {
	s.Addresses = nil
	for _, ip := range now.PodIPs {
		s.Addresses = append(s.Addresses, ip.IP)
	}
	s.Ready, s.Total, s.Restarts = 0, 0, 0
	for _, c := range lasting(p, now) {
		s.Total++
		s.Restarts += int(c.RestartCount)
		if c.Ready {
			s.Ready++
		}
	}
	switch {
	case !started:
		s.Phase, s.Message = Pending, cmp.Or(whyInit(p, now, d), d.Why)
	case now.Phase == corev1.PodSucceeded:
		s.Phase, s.Message = Succeeded, ""
	case now.Phase == corev1.PodFailed:
		s.Phase, s.Message = Failed, whyFailed(p, now, d)
	default:
		s.Phase, s.Message = Running, cmp.Or(whyWaiting(now), d.Why, d.Trouble)
	}
}

// lasting are the containers that are to run on: all but init containers.
func lasting(p *corev1.Pod, now corev1.PodStatus) []corev1.ContainerStatus {
	out := slices.Clone(now.ContainerStatuses)
	for _, c := range now.InitContainerStatuses {
		if sidecar(p, c.Name) {
			out = append(out, c)
		}
	}
	return out
}

func sidecar(p *corev1.Pod, name string) bool {
	return slices.ContainsFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name && plan.Sidecar(&c) })
}

// hasBegun says that every container was started once, and no hook of a start is at it.
func hasBegun(p *corev1.Pod, now corev1.PodStatus, d shown.Detail) bool {
	begun := map[string]bool{}
	for _, c := range now.ContainerStatuses {
		begun[c.Name] = c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
	}
	for _, c := range p.Spec.Containers {
		if !begun[c.Name] {
			return false
		}
	}
	return !d.Starting
}

// whyInit says which init container a pod is at.
func whyInit(p *corev1.Pod, now corev1.PodStatus, d shown.Detail) string {
	for _, c := range now.InitContainerStatuses {
		switch t := c.State.Terminated; {
		case sidecar(p, c.Name), t != nil && t.ExitCode == 0:
		case c.State.Running != nil:
			return "init container " + c.Name + " runs"
		case d.Ended[c.Name] != "":
			return cmp.Or(d.Why, "init container "+c.Name+" "+d.Ended[c.Name])
		default:
			return ""
		}
	}
	return ""
}

// whyFailed tells how the containers ended because of which a pod has failed.
func whyFailed(p *corev1.Pod, now corev1.PodStatus, d shown.Detail) string {
	if now.Reason != "" {
		text := now.Reason
		if now.Reason == plan.DeadlineExceeded {
			text += ": it ran longer than activeDeadlineSeconds"
		} else if now.Message != "" {
			text += ": " + now.Message
		}
		return text
	}
	var why []string
	for _, c := range slices.Concat(now.InitContainerStatuses, now.ContainerStatuses) {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 && !sidecar(p, c.Name) && d.Ended[c.Name] != "" {
			why = append(why, "container "+c.Name+" "+d.Ended[c.Name])
		}
	}
	slices.Sort(why)
	return strings.Join(why, "; ")
}

// whyWaiting tells of the first container that cannot be started.
func whyWaiting(now corev1.PodStatus) string {
	for _, c := range slices.Concat(now.InitContainerStatuses, now.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Message != "" && w.Reason != plan.CrashLoopBackOff {
			return "container " + c.Name + ": " + w.Reason + ": " + w.Message
		}
	}
	return ""
}

// startFailure says why a pod that has failed never came to its containers.
func startFailure(now corev1.PodStatus, d shown.Detail) string {
	if now.Reason != "" {
		return "start its containers: " + now.Reason
	}
	for _, c := range now.InitContainerStatuses {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 && d.Ended[c.Name] != "" {
			return "init container " + c.Name + ": " + d.Ended[c.Name]
		}
	}
	return "keep its sandbox: it was lost, and the restartPolicy is Never"
}
