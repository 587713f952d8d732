package status

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podresources "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
)

// Input is what a status is made from. Nothing of it is changed.
type Input struct {
	// Pod has the resources that it was admitted with, and the status that the API
	// server has of it.
	Pod *corev1.Pod
	// Previous was told last; nil means the one in Pod, as after a restart.
	Previous *corev1.PodStatus
	Plan     plan.Plan
	Sandbox  *runtimeapi.PodSandboxStatus // the latest; nil before there is one
	// Containers are by name: init, app and ephemeral ones.
	Containers map[string]Container
	HostIPs    []string // the first is the main one
	Now        time.Time
	Started    time.Time // when the pod was accepted here
	Ended      *Ended    // nil if the pod was not ended from outside
	// Waiting is why containers do not run beyond what the plan says of it, by name;
	// it wins over the plan.
	Waiting map[string]corev1.ContainerStateWaiting
	// Conditions are set by others, like DisruptionTarget and PodResizePending.
	Conditions []corev1.PodCondition
	// Devices says how those work that a container has, by what was told of them last. It
	// may be nil: no container has any then.
	Devices func(pod types.UID, container string, told []corev1.ResourceStatus) []corev1.ResourceStatus
	// Runtime is the scheme of container ids, the name that Version answers.
	Runtime string
}

// Ended is why a pod has failed whatever its containers came to: it was evicted,
// or had no more time.
type Ended struct{ Reason, Message string }

// Container is what is known of one container.
type Container struct {
	// Now is the latest attempt, and Last the one before it, which has ended; nil if
	// there is none.
	Now, Last *runtimeapi.ContainerStatus
	// Ready and Started are by probes and hooks, and count while it runs.
	Ready, Started bool
	// Probed says that Now was ended for a probe, so that it runs again whatever it ended with.
	Probed bool
	// Message and LastMessage are what the attempts left as their last words.
	Message, LastMessage string
}

// maker makes one status.
type maker struct {
	Input
	before *corev1.PodStatus
	over   bool // the pod is ending or has ended, and nothing of it is left
	out    corev1.PodStatus
}

// Of makes the status of a pod. It is to be asked once the runtime was: before
// that, a pod that is ending looks as if it had ended.
func Of(in Input) corev1.PodStatus {
	m := &maker{Input: in, before: in.Previous}
	if m.before == nil {
		m.before = &in.Pod.Status
	}
	ending := in.Ended != nil || in.Plan.Reason != "" || in.Pod.DeletionTimestamp != nil || Terminal(in.Plan.Phase) || Terminal(m.before.Phase)
	m.over = ending && !m.alive()
	m.out = base(in.Pod)
	m.out.StartTime = m.startTime()
	m.resources()
	m.addresses()
	m.statuses()
	m.out.Conditions = m.foreign()
	initialized := m.initialized()
	m.settle(initialized.Status == corev1.ConditionTrue)
	m.conditions(initialized)
	if m.never() {
		m.out.InitContainerStatuses, m.out.ContainerStatuses, m.out.EphemeralContainerStatuses = nil, nil, nil
	}
	return m.out
}

// never says that the pod failed before anything was done for it, as one that was
// not admitted. Its containers have no status then: an exit code would count as one
// in a Job's podFailurePolicy.
func (m *maker) never() bool {
	if m.out.Phase != corev1.PodFailed || m.Ended == nil && !Terminal(m.before.Phase) || m.Sandbox != nil {
		return false
	}
	for _, c := range m.Containers {
		if c.Now != nil || c.Last != nil {
			return false
		}
	}
	return len(m.before.InitContainerStatuses)+len(m.before.ContainerStatuses) == 0
}

// base is what does not depend on what runs.
func base(pod *corev1.Pod) corev1.PodStatus {
	theirs := pod.Status.DeepCopy()
	return corev1.PodStatus{
		ObservedGeneration: pod.Generation,
		QOSClass:           cmp.Or(pod.Status.QOSClass, podspec.QOS(pod)),
		// The scheduler's and controllers', which stay as they are.
		NominatedNodeName:                    theirs.NominatedNodeName,
		ResourceClaimStatuses:                theirs.ResourceClaimStatuses,
		ExtendedResourceClaimStatus:          theirs.ExtendedResourceClaimStatus,
		NodeAllocatableResourceClaimStatuses: theirs.NodeAllocatableResourceClaimStatuses,
		VolumeHealth:                         theirs.VolumeHealth,
	}
}

// resources are those of the pod as a whole (KEP-5419). Until a resize is done, what
// was told of them stays.
func (m *maker) resources() {
	if list := podresources.PodRequests(m.Pod, podresources.PodResourcesOptions{ExcludeOverhead: true}); len(list) > 0 {
		m.out.AllocatedResources = list
	}
	m.out.Resources = m.Pod.Spec.Resources.DeepCopy()
	if c := find(m.Conditions, corev1.PodResizeInProgress); c != nil && c.Status == corev1.ConditionTrue && m.before.Resources != nil {
		m.out.Resources = m.before.Resources.DeepCopy()
	}
}

func (m *maker) startTime() *metav1.Time {
	switch {
	case m.before.StartTime != nil:
		return m.before.StartTime.DeepCopy()
	case m.Started.IsZero():
		return nil
	}
	t := seconds(m.Started)
	return &t
}

// seconds is a time as the API keeps it.
func seconds(t time.Time) metav1.Time {
	return metav1.NewTime(t.UTC().Truncate(time.Second))
}

func nanoseconds(n int64) metav1.Time {
	if n == 0 {
		return metav1.Time{}
	}
	return seconds(time.Unix(0, n))
}

// Alive says that something of a pod may still run, or hold its address.
func Alive(in Input) bool {
	if in.Sandbox != nil && in.Sandbox.State == runtimeapi.PodSandboxState_SANDBOX_READY {
		return true
	}
	for _, c := range in.Containers {
		if s := c.Now.GetState(); c.Now != nil && (s == runtimeapi.ContainerState_CONTAINER_RUNNING || s == runtimeapi.ContainerState_CONTAINER_UNKNOWN) {
			return true
		}
	}
	return false
}

func (m *maker) alive() bool { return Alive(m.Input) }

func (m *maker) sandboxReady() bool {
	return m.Sandbox != nil && m.Sandbox.State == runtimeapi.PodSandboxState_SANDBOX_READY
}

// addresses writes the node's and the pod's. A pod that ended keeps those that it
// had.
func (m *maker) addresses() {
	for _, ip := range podspec.OfEachFamily(m.HostIPs, first(m.HostIPs)) {
		m.out.HostIPs = append(m.out.HostIPs, corev1.HostIP{IP: ip})
	}
	m.out.HostIP = first(m.HostIPs)
	ips := m.sandboxIPs()
	switch {
	case m.Pod.Spec.HostNetwork:
		ips = m.HostIPs
	case len(ips) == 0 && (m.over || m.Pod.DeletionTimestamp != nil || Terminal(m.before.Phase) || Terminal(m.Plan.Phase)):
		for _, ip := range m.before.PodIPs {
			ips = append(ips, ip.IP)
		}
	}
	for _, ip := range podspec.OfEachFamily(ips, first(m.HostIPs)) {
		m.out.PodIPs = append(m.out.PodIPs, corev1.PodIP{IP: ip})
		m.out.PodIP = m.out.PodIPs[0].IP
	}
}

func (m *maker) sandboxIPs() []string {
	network := m.Sandbox.GetNetwork()
	if !m.sandboxReady() || network.GetIp() == "" {
		return nil
	}
	ips := []string{network.GetIp()}
	for _, more := range network.GetAdditionalIps() {
		ips = append(ips, more.GetIp())
	}
	return ips
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// settle decides the phase and its reason. A pod ends only when nothing of it runs
// any more, so that nobody takes its place before, and never comes back.
func (m *maker) settle(initialized bool) {
	if Terminal(m.before.Phase) {
		m.out.Phase, m.out.Reason, m.out.Message = m.before.Phase, m.before.Reason, m.before.Message
		return
	}
	phase := cmp.Or(m.Plan.Phase, corev1.PodPending)
	switch {
	case m.Ended != nil, m.over && !Terminal(phase):
		phase = corev1.PodFailed
	case phase == corev1.PodPending && m.before.Phase == corev1.PodRunning && initialized:
		phase = corev1.PodRunning // a container was lost, and is made again
	}
	if Terminal(phase) && m.alive() {
		m.out.Phase = m.unfinished()
		return
	}
	m.out.Phase = phase
	switch {
	case m.Ended != nil:
		m.out.Reason, m.out.Message = m.Ended.Reason, m.Ended.Message
	case m.Plan.Reason == plan.DeadlineExceeded:
		m.out.Reason, m.out.Message = m.Plan.Reason, "Pod was active on the node longer than the specified deadline"
	case m.Plan.Reason != "":
		m.out.Reason = m.Plan.Reason
	}
}

// unfinished is the phase of a pod that will have ended.
func (m *maker) unfinished() corev1.PodPhase {
	if m.before.Phase == corev1.PodRunning {
		return corev1.PodRunning
	}
	for i := range m.out.ContainerStatuses {
		if s := &m.out.ContainerStatuses[i].State; s.Running != nil || s.Terminated != nil {
			return corev1.PodRunning
		}
	}
	return corev1.PodPending
}

// Terminal says that a pod has ended.
func Terminal(p corev1.PodPhase) bool {
	return p == corev1.PodSucceeded || p == corev1.PodFailed
}

// Ready says that a pod is.
func Ready(s *corev1.PodStatus) bool {
	if s == nil {
		return false
	}
	c := find(s.Conditions, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// Blocked is the status of a pod that cannot begin yet, and why.
func Blocked(pod *corev1.Pod, hostIPs []string, why string, now time.Time) corev1.PodStatus {
	in := Input{Pod: pod, Plan: plan.Plan{Phase: corev1.PodPending}, HostIPs: hostIPs, Now: now, Waiting: map[string]corev1.ContainerStateWaiting{}}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			in.Waiting[list[i].Name] = corev1.ContainerStateWaiting{Reason: plan.ContainerCreating, Message: why}
		}
	}
	return Of(in)
}

// Equal says that there is nothing new in b. The order of conditions says nothing,
// and the API has no time below a second.
func Equal(a, b *corev1.PodStatus) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := comparable(a), comparable(b)
	return equality.Semantic.DeepEqual(x, y)
}

func comparable(s *corev1.PodStatus) *corev1.PodStatus {
	s = s.DeepCopy()
	slices.SortStableFunc(s.Conditions, func(a, b corev1.PodCondition) int { return cmp.Compare(a.Type, b.Type) })
	cut(s.StartTime)
	for i := range s.Conditions {
		cut(&s.Conditions[i].LastProbeTime)
		cut(&s.Conditions[i].LastTransitionTime)
	}
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			cutState(&list[i].State)
			cutState(&list[i].LastTerminationState)
		}
	}
	return s
}

func cutState(s *corev1.ContainerState) {
	if r := s.Running; r != nil {
		cut(&r.StartedAt)
	}
	if t := s.Terminated; t != nil {
		cut(&t.StartedAt)
		cut(&t.FinishedAt)
	}
}

func cut(t *metav1.Time) {
	if t != nil && !t.IsZero() {
		*t = seconds(t.Time)
	}
}
