package status

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/plan"
)

// The kubelet's reasons of conditions.
const (
	containersNotReady       = "ContainersNotReady"
	containersNotInitialized = "ContainersNotInitialized"
	readinessGatesNotReady   = "ReadinessGatesNotReady"
	podCompleted             = "PodCompleted"
	podFailed                = "PodFailed"
	restartAllStarted        = "RestartAllContainersStarted"
)

// Owned says that a condition is the node's to set, and to take away. Others stay
// in a pod until those who have set them remove them.
func Owned(t corev1.PodConditionType) bool {
	switch t {
	case corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReadyToStartContainers,
		corev1.PodResizePending, corev1.PodResizeInProgress, corev1.AllContainersRestarting:
		return true
	}
	return false
}

func find(list []corev1.PodCondition, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

// foreign are the conditions that others have set: on the API server, and here.
func (m *maker) foreign() []corev1.PodCondition {
	var out []corev1.PodCondition
	add := func(c corev1.PodCondition) {
		if old := find(out, c.Type); old != nil {
			*old = c
			return
		}
		out = append(out, c)
	}
	// A disruption that was told of stays told; the API server may not have it yet.
	if c := find(m.before.Conditions, corev1.DisruptionTarget); c != nil {
		add(*c)
	}
	for _, c := range m.Pod.Status.Conditions {
		if !Owned(c.Type) {
			add(c)
		}
	}
	for _, c := range m.Conditions {
		if c.ObservedGeneration == 0 {
			c.ObservedGeneration = m.Pod.Generation
		}
		if c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = m.changed(c)
		}
		add(c)
	}
	return out
}

// condition sets one of the node's own.
func (m *maker) condition(c corev1.PodCondition) {
	c.ObservedGeneration = m.Pod.Generation
	c.LastTransitionTime = m.changed(c)
	if old := find(m.out.Conditions, c.Type); old != nil {
		*old = c
		return
	}
	m.out.Conditions = append(m.out.Conditions, c)
}

// conditions sets the node's own.
func (m *maker) conditions(initialized corev1.PodCondition) {
	if initialized.Status == corev1.ConditionTrue && m.out.Phase == corev1.PodSucceeded {
		initialized.Reason = podCompleted
	}
	containers := m.containersReady()
	m.condition(m.readyToStart())
	m.condition(initialized)
	m.condition(m.ready(containers))
	m.condition(containers)
	m.condition(corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	if plan.RestartsAll(m.Pod) {
		m.condition(m.restarting())
	}
}

// restarting says whether all containers are about to begin again (KEP-5532). Pods in which
// no rule asks for that have no such condition.
func (m *maker) restarting() corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.AllContainersRestarting, Status: corev1.ConditionFalse}
	switch {
	case m.out.Phase == corev1.PodSucceeded:
		c.Reason = podCompleted
	case m.out.Phase == corev1.PodFailed:
		c.Reason = podFailed
	case m.Plan.StartsOver != "":
		c.Status, c.Reason = corev1.ConditionTrue, restartAllStarted
		c.Message = "a restart rule of container " + m.Plan.StartsOver + " has all containers start again"
	}
	return c
}

func (m *maker) readyToStart() corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}
	if m.sandboxReady() && (m.Pod.Spec.HostNetwork || m.Sandbox.GetNetwork().GetIp() != "") {
		c.Status = corev1.ConditionTrue
	}
	return c
}

// initialized says whether the init containers have done their work: the sidecars
// are up, the others have succeeded. Once a container runs that comes after them
// they have, though they may be gone.
func (m *maker) initialized() corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	for i := range m.out.ContainerStatuses {
		if s := &m.out.ContainerStatuses[i]; s.State.Running != nil || s.State.Terminated != nil && !m.stale(s.Name) {
			return c
		}
	}
	var missing []string
	for i := range m.Pod.Spec.InitContainers {
		s := &m.out.InitContainerStatuses[i]
		now := m.Containers[s.Name].Now
		done := s.Ready && !m.stale(s.Name) && (now == nil || now.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED)
		if plan.Sidecar(&m.Pod.Spec.InitContainers[i]) {
			done = s.Started != nil && *s.Started
		}
		if !done {
			missing = append(missing, s.Name)
		}
	}
	if len(missing) > 0 {
		c.Status, c.Reason = corev1.ConditionFalse, containersNotInitialized
		c.Message = fmt.Sprintf("containers with incomplete status: %s", missing)
	}
	return c
}

// stale says that a container was made in a sandbox that was before the one that is
// there now. Its status does not name a sandbox, so the times tell.
func (m *maker) stale(name string) bool {
	now := m.Containers[name].Now
	return now != nil && m.Sandbox != nil && now.GetCreatedAt() < m.Sandbox.GetCreatedAt()
}

func (m *maker) containersReady() corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse}
	switch m.out.Phase {
	case corev1.PodSucceeded:
		c.Reason = podCompleted
		return c
	case corev1.PodFailed:
		c.Reason = podFailed
		return c
	}
	var unready []string
	for i := range m.Pod.Spec.InitContainers {
		if s := &m.out.InitContainerStatuses[i]; plan.Sidecar(&m.Pod.Spec.InitContainers[i]) && !s.Ready {
			unready = append(unready, s.Name)
		}
	}
	for i := range m.Pod.Spec.Containers {
		if s := statusOf(m.out.ContainerStatuses, m.Pod.Spec.Containers[i].Name); !s.Ready {
			unready = append(unready, s.Name)
		}
	}
	if len(unready) == 0 {
		c.Status = corev1.ConditionTrue
		return c
	}
	c.Reason, c.Message = containersNotReady, fmt.Sprintf("containers with unready status: %s", unready)
	return c
}

// ready adds the readiness gates to what the containers say (KEP-580).
func (m *maker) ready(containers corev1.PodCondition) corev1.PodCondition {
	c := containers
	c.Type = corev1.PodReady
	if c.Status != corev1.ConditionTrue {
		return c
	}
	var missing []string
	for _, gate := range m.Pod.Spec.ReadinessGates {
		switch got := find(m.out.Conditions, gate.ConditionType); {
		case got == nil:
			missing = append(missing, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case got.Status != corev1.ConditionTrue:
			missing = append(missing, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, got.Status))
		}
	}
	if len(missing) > 0 {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, readinessGatesNotReady, strings.Join(missing, ", ")
	}
	return c
}

// changed is when a condition got its status.
func (m *maker) changed(c corev1.PodCondition) metav1.Time {
	if old := find(m.before.Conditions, c.Type); old != nil && old.Status == c.Status && !old.LastTransitionTime.IsZero() {
		return old.LastTransitionTime
	}
	return seconds(m.Now)
}
