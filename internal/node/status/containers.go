package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
)

// What the kubelet says of a container that ran and that nobody has any more.
const (
	unknownReason = "ContainerStatusUnknown"
	unknownCode   = 137
)

// kind is in which list of the spec a container is.
type kind int

const (
	app kind = iota
	initial
	sidecar
	ephemeral
)

// statuses writes those of all containers: of init containers in the order of the
// spec, in which they run, and of the others by name.
func (m *maker) statuses() {
	spec := &m.Pod.Spec
	for i := range spec.InitContainers {
		k := initial
		if plan.Sidecar(&spec.InitContainers[i]) {
			k = sidecar
		}
		m.out.InitContainerStatuses = append(m.out.InitContainerStatuses, m.container(&spec.InitContainers[i], k))
	}
	for i := range spec.Containers {
		m.out.ContainerStatuses = append(m.out.ContainerStatuses, m.container(&spec.Containers[i], app))
	}
	for i := range spec.EphemeralContainers {
		ct := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		m.out.EphemeralContainerStatuses = append(m.out.EphemeralContainerStatuses, m.container(&ct, ephemeral))
	}
	byName := func(a, b corev1.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortStableFunc(m.out.ContainerStatuses, byName)
	slices.SortStableFunc(m.out.EphemeralContainerStatuses, byName)
	if m.over {
		m.bury()
	}
}

func statusOf(list []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// told is what was told last of a container; nothing but its name if nothing was.
func (m *maker) told(name string, k kind) *corev1.ContainerStatus {
	list := m.before.ContainerStatuses
	switch k {
	case initial, sidecar:
		list = m.before.InitContainerStatuses
	case ephemeral:
		list = m.before.EphemeralContainerStatuses
	}
	if s := statusOf(list, name); s != nil {
		return s
	}
	return &corev1.ContainerStatus{Name: name}
}

func (m *maker) container(ct *corev1.Container, k kind) corev1.ContainerStatus {
	seen, before := m.Containers[ct.Name], m.told(ct.Name, k)
	out := corev1.ContainerStatus{Name: ct.Name, Image: ct.Image, RestartCount: before.RestartCount}
	switch {
	case seen.Now != nil:
		m.present(&out, before)
		m.describe(&out, ct)
	case k == ephemeral && before.State.Running != nil: // nobody starts it again
		out.State.Terminated = lost(before.State.Running, before.ContainerID)
		out.Image, out.ImageID, out.ContainerID = cmp.Or(before.Image, out.Image), before.ImageID, before.ContainerID
	default:
		m.absent(&out, before)
	}
	m.keep(&out, before, ct, k)
	m.devices(&out, before, k)
	readiness(&out, seen, k)
	return out
}

// absent is a container that nobody has: it was not made yet, or it is lost.
func (m *maker) absent(out, before *corev1.ContainerStatus) {
	waiting, waits := m.waiting(out.Name)
	if last := m.Containers[out.Name].Last; last != nil && last.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED {
		before = &corev1.ContainerStatus{State: corev1.ContainerState{Terminated: m.terminated(last, m.Containers[out.Name].LastMessage)}}
		out.RestartCount = max(out.RestartCount, restarts(last))
	}
	switch {
	case before.State.Running != nil:
		end := lost(before.State.Running, before.ContainerID)
		if !m.over {
			out.LastTerminationState.Terminated = end
			out.RestartCount++
			break
		}
		out.State.Terminated, out.LastTerminationState = end, *before.LastTerminationState.DeepCopy()
	case before.State.Terminated != nil && (m.over || !waits):
		// It was removed after its end, which stays as it was.
		out.State, out.LastTerminationState = *before.State.DeepCopy(), *before.LastTerminationState.DeepCopy()
	case before.State.Terminated != nil:
		out.LastTerminationState = *before.State.DeepCopy()
	default:
		out.LastTerminationState = *before.LastTerminationState.DeepCopy()
	}
	if out.State.Terminated == nil {
		out.State.Waiting = &waiting
		return
	}
	out.Image, out.ImageID, out.ContainerID = cmp.Or(before.Image, out.Image), before.ImageID, before.ContainerID
}

// lost is the end of a container that ran when it was last seen. How it ended is
// not known, and is not made up: the code is that of one which was killed.
func lost(ran *corev1.ContainerStateRunning, id string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{
		ExitCode: unknownCode, Reason: unknownReason, ContainerID: id, StartedAt: ran.StartedAt,
		Message: "the container ran when it was last seen, and the runtime does not have it any more",
	}
}

// present is a container that the runtime has.
func (m *maker) present(out, before *corev1.ContainerStatus) {
	seen := m.Containers[out.Name]
	now := seen.Now
	out.RestartCount = max(out.RestartCount, restarts(now))
	out.ContainerID = m.id(now)
	out.LastTerminationState = m.last(seen, before)
	waiting, waits := m.waiting(out.Name)
	switch now.GetState() {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		out.State.Running = &corev1.ContainerStateRunning{StartedAt: nanoseconds(now.GetStartedAt())}
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		end := m.terminated(now, seen.Message)
		// One that starts again at once has its end as its state until then, unless that looks
		// as if it had done its work: an API server lets nothing run after that.
		atOnce := waiting.Reason == plan.ContainerCreating || waiting.Reason == plan.PodInitializing
		if !waits || atOnce && !(seen.Probed && end.ExitCode == 0) {
			out.State.Terminated = end
			break
		}
		out.State.Waiting, out.LastTerminationState.Terminated = &waiting, end
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		out.State.Waiting = &waiting
	default:
		m.unknown(out, before)
	}
}

// unknown is a container of which the runtime does not know what it does. It may
// know again soon, so an end is not made up.
func (m *maker) unknown(out, before *corev1.ContainerStatus) {
	if before.State.Running != nil && before.ContainerID == out.ContainerID {
		out.State.Running = before.State.Running.DeepCopy()
		return
	}
	out.State.Waiting = &corev1.ContainerStateWaiting{Reason: unknownReason, Message: "the runtime does not know what the container does"}
}

// keep keeps the end of a container that its policy does not restart: the API server
// refuses a status in which such a one runs again, and with it all that is new. So it
// is with an init container whose work is done again in another sandbox.
func (m *maker) keep(out, before *corev1.ContainerStatus, ct *corev1.Container, k kind) {
	end := before.State.Terminated
	if end == nil || out.State.Terminated != nil || k == sidecar {
		return
	}
	if k == ephemeral || !plan.RestartsAll(m.Pod) && !plan.Restarts(m.Pod, ct, end.ExitCode) {
		out.State, out.LastTerminationState = *before.State.DeepCopy(), *before.LastTerminationState.DeepCopy()
	}
}

// Restarts is how often a container was restarted, as a status says it.
func Restarts(s *corev1.PodStatus, name string) uint32 {
	if s == nil {
		return 0
	}
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		if c := statusOf(list, name); c != nil {
			return uint32(max(c.RestartCount, 0))
		}
	}
	return 0
}

func restarts(s *runtimeapi.ContainerStatus) int32 {
	return int32(min(s.GetMetadata().GetAttempt(), 1<<31-1))
}

func (m *maker) id(s *runtimeapi.ContainerStatus) string {
	if s.GetId() == "" {
		return ""
	}
	return m.Runtime + "://" + s.GetId()
}

func (m *maker) terminated(s *runtimeapi.ContainerStatus, words string) *corev1.ContainerStateTerminated {
	out := &corev1.ContainerStateTerminated{
		ExitCode: s.GetExitCode(), Reason: s.GetReason(), Message: s.GetMessage(), ContainerID: m.id(s),
		StartedAt: nanoseconds(s.GetStartedAt()), FinishedAt: nanoseconds(s.GetFinishedAt()),
	}
	if out.StartedAt.IsZero() {
		out.StartedAt = out.FinishedAt // it could not be started
	}
	switch {
	case words == "" || words == out.Message:
	case out.Message == "":
		out.Message = words
	default:
		out.Message += ": " + words
	}
	switch {
	case out.Reason != "":
	case out.ExitCode == 0:
		out.Reason = "Completed"
	default:
		out.Reason = "Error"
	}
	return out
}

// last is how the attempt before the latest has ended. If it is gone, what was told
// of it counts.
func (m *maker) last(seen Container, before *corev1.ContainerStatus) corev1.ContainerState {
	if seen.Last != nil && seen.Last.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED { // which never ran
		return corev1.ContainerState{Terminated: m.terminated(seen.Last, seen.LastMessage)}
	}
	id := m.id(seen.Now)
	switch end := before.State.Terminated; {
	case end != nil && end.ContainerID != "" && end.ContainerID != id: // without an id nothing had run
		return *before.State.DeepCopy()
	case before.State.Running != nil && before.ContainerID != id:
		return corev1.ContainerState{Terminated: lost(before.State.Running, before.ContainerID)}
	case before.LastTerminationState.Terminated != nil && before.LastTerminationState.Terminated.ContainerID != id:
		return *before.LastTerminationState.DeepCopy()
	}
	return corev1.ContainerState{}
}

// waiting is why a container does not run, and whether anybody says so. Of one that
// is not made yet the kubelet says what comes first in its pod.
func (m *maker) waiting(name string) (corev1.ContainerStateWaiting, bool) {
	first := corev1.ContainerStateWaiting{Reason: plan.ContainerCreating}
	if len(m.Pod.Spec.InitContainers) > 0 {
		first.Reason = plan.PodInitializing
	}
	if m.over {
		return first, false
	}
	if w, ok := m.Waiting[name]; ok {
		return w, true
	}
	w, ok := m.Plan.Waiting[name]
	switch {
	case !ok || w.Reason == plan.ContainerCreating || w.Reason == plan.PodInitializing:
		return first, ok
	case w.Reason == plan.CrashLoopBackOff:
		return corev1.ContainerStateWaiting{Reason: w.Reason, Message: m.backoff(name, w.Until)}, true
	}
	return corev1.ContainerStateWaiting{Reason: w.Reason}, true
}

func (m *maker) backoff(name string, until time.Time) string {
	pause := until.Sub(m.Now)
	if ended := m.Containers[name].Now.GetFinishedAt(); ended != 0 {
		pause = until.Sub(time.Unix(0, ended))
	}
	return fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", max(pause, 0).Round(time.Second), name, m.Pod.Name, m.Pod.Namespace, m.Pod.UID)
}

// readiness says whether a container is up and ready. An init container is ready
// when it has succeeded, and ephemeral ones never are.
func readiness(out *corev1.ContainerStatus, seen Container, k kind) {
	runs := out.State.Running != nil
	started := runs && seen.Started
	switch k {
	case ephemeral:
		return
	case initial:
		out.Ready = out.State.Terminated != nil && out.State.Terminated.ExitCode == 0
	default:
		out.Ready = runs && seen.Ready
	}
	out.Started = &started
}

// devices writes how those work that a container has (KEP-4680). They are free once the pod
// has ended, and what was told last stays.
func (m *maker) devices(out, before *corev1.ContainerStatus, k kind) {
	switch {
	case m.Devices == nil || k != app && k != sidecar:
	case m.over:
		out.AllocatedResourcesStatus = before.DeepCopy().AllocatedResourcesStatus
	default:
		out.AllocatedResourcesStatus = m.Devices(m.Pod.UID, out.Name, before.AllocatedResourcesStatus)
	}
}

// describe writes what a container was made as.
func (m *maker) describe(out *corev1.ContainerStatus, ct *corev1.Container) {
	now := m.Containers[out.Name].Now
	out.Image = imageName(now, ct)
	out.ImageID = cmp.Or(now.GetImageRef(), now.GetImageId())
	out.AllocatedResources = ct.Resources.Requests.DeepCopy()
	out.Resources = ct.Resources.DeepCopy()
	if now.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
		out.Resources = cmp.Or(podspec.ResourcesOf(&podspec.Context{Pod: m.Pod}, ct, now), out.Resources)
	}
	if u := now.GetUser().GetLinux(); u != nil {
		out.User = &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: u.GetUid(), GID: u.GetGid(), SupplementalGroups: slices.Clone(u.GetSupplementalGroups())}}
	}
	out.VolumeMounts = volumeMounts(ct, now)
	out.StopSignal = stopSignal(now.GetStopSignal())
}

// imageName is by what name the runtime knows the image. Some answer its id.
func imageName(now *runtimeapi.ContainerStatus, ct *corev1.Container) string {
	name := now.GetImage().GetImage()
	if name == "" || strings.HasPrefix(name, "sha256:") {
		name = cmp.Or(now.GetImage().GetUserSpecifiedImage(), ct.Image, name)
	}
	return name
}

// volumeMounts tells of each volume whether it is read-only all the way down
// (KEP-3857).
func volumeMounts(ct *corev1.Container, now *runtimeapi.ContainerStatus) []corev1.VolumeMountStatus {
	recursive := map[string]bool{}
	for _, mount := range now.GetMounts() {
		recursive[mount.GetContainerPath()] = mount.GetRecursiveReadOnly()
	}
	var out []corev1.VolumeMountStatus
	for _, v := range ct.VolumeMounts {
		s := corev1.VolumeMountStatus{Name: v.Name, MountPath: v.MountPath, ReadOnly: v.ReadOnly}
		if v.ReadOnly {
			mode := corev1.RecursiveReadOnlyDisabled
			if recursive[podspec.MountPath(v)] {
				mode = corev1.RecursiveReadOnlyEnabled
			}
			s.RecursiveReadOnly = &mode
		}
		out = append(out, s)
	}
	return out
}

// stopSignal is in the API's words: SIGRTMIN+1 for what the CRI calls
// SIGNAL_SIGRTMINPLUS1.
func stopSignal(s runtimeapi.Signal) *corev1.Signal {
	if s == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return nil
	}
	name := corev1.Signal(strings.NewReplacer("SIGNAL_", "", "PLUS", "+", "MINUS", "-").Replace(s.String()))
	return &name
}

// bury ends what waits in a pod of which nothing is left: containers that would
// have been next after its init containers, and init containers that were before
// one that was seen.
func (m *maker) bury() {
	end := func(s *corev1.ContainerStatus) {
		if s.State.Terminated == nil {
			s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: unknownCode, Reason: unknownReason, Message: "the pod ended, and the runtime does not have the container",
			}}
		}
	}
	if m.initialized().Status == corev1.ConditionTrue {
		for i := range m.out.ContainerStatuses {
			end(&m.out.ContainerStatuses[i])
		}
	}
	seen := false
	for i := range slices.Backward(m.out.InitContainerStatuses) {
		s := &m.out.InitContainerStatuses[i]
		if seen = seen || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil; seen {
			end(s)
		}
	}
}

// WasUp says what the status of a pod has of the attempt with that id: whether it has
// started, and is ready. It is neither where the status tells of another one.
func WasUp(pod *corev1.Pod, id string) (started, ready bool) {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, c := range list {
			if _, told, _ := strings.Cut(c.ContainerID, "://"); told == id {
				return c.Started != nil && *c.Started, c.Ready
			}
		}
	}
	return false, false
}
