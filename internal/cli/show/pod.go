package show

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Ready counts the containers of a pod that are ready, and those that run on: its
// containers and sidecars.
func Ready(p *corev1.Pod) (ready, total int) {
	list := slices.Clone(p.Status.ContainerStatuses)
	total = len(p.Spec.Containers)
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if !sidecar(c) {
			continue
		}
		total++
		if st := statusOf(p.Status.InitContainerStatuses, c.Name); st != nil {
			list = append(list, *st)
		}
	}
	for _, c := range list {
		if c.Ready {
			ready++
		}
	}
	return ready, total
}

func sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func statusOf(list []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	i := slices.IndexFunc(list, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// Status is how a pod is, in a word or two: its phase, or what a container is at that
// keeps it from there.
func Status(p *corev1.Pod) string {
	text := cmp.Or(p.Status.Reason, string(p.Status.Phase))
	ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	if init := initStatus(p); init != "" && !(ended && p.Status.Reason != "") {
		text = init
	} else if p.Status.Reason == "" {
		text = cmp.Or(containersStatus(p), text)
	}
	if p.DeletionTimestamp != nil && !ended {
		return "Terminating"
	}
	return text
}

// initStatus tells of the first init container that has not done what is to be done
// before the next; empty if there is none.
func initStatus(p *corev1.Pod) string {
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		st := statusOf(p.Status.InitContainerStatuses, c.Name)
		switch {
		case st == nil:
		case st.State.Terminated != nil && st.State.Terminated.ExitCode == 0:
			continue
		case sidecar(c) && st.Started != nil && *st.Started:
			continue
		case st.State.Terminated != nil:
			return "Init:" + ended(st.State.Terminated)
		case st.State.Waiting != nil && st.State.Waiting.Reason != "" && st.State.Waiting.Reason != "PodInitializing":
			return "Init:" + st.State.Waiting.Reason
		}
		if len(p.Status.InitContainerStatuses) == 0 {
			return ""
		}
		return fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
	}
	return ""
}

// containersStatus tells of the first container that does not run. A pod of which one
// runs and others have completed is not one that has.
func containersStatus(p *corev1.Pod) string {
	text, running := "", false
	for _, c := range slices.Backward(p.Status.ContainerStatuses) {
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			text = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			text = ended(c.State.Terminated)
		case c.State.Running != nil:
			running = true
		}
	}
	if text != "Completed" || !running {
		return text
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return "Running"
		}
	}
	return "NotReady"
}

// ended is how a container has, in a word.
func ended(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

// restarts are those of all containers, and when the last was.
func restarts(p *corev1.Pod, now time.Time) string {
	total, last := int32(0), time.Time{}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		total += c.RestartCount
		if t := c.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
	}
	if total == 0 || last.IsZero() {
		return fmt.Sprint(total)
	}
	return fmt.Sprintf("%d (%s ago)", total, Age(now.Sub(last)))
}

// Why is what keeps a pod from being ready: what its agent says of that, or else why it
// has failed, or what the first container waits for that does not just take its time.
func Why(o metav1.Object, told string) string {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return ""
	}
	if p.Status.Reason != "" {
		return strings.TrimSuffix(p.Status.Reason+": "+p.Status.Message, ": ")
	}
	if told != "" {
		return told
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		w := c.State.Waiting
		if w != nil && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return strings.TrimSuffix("container "+c.Name+": "+w.Reason+": "+w.Message, ": ")
		}
	}
	return ""
}
