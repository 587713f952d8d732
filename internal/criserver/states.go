package criserver

import (
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

// encodePodState knows two states: a pod that accepts containers, and the rest.
func encodePodState(s pod.State) cri.PodSandboxState {
	if s == pod.Running {
		return cri.PodSandboxState_SANDBOX_READY
	}
	return cri.PodSandboxState_SANDBOX_NOTREADY
}

func encodeContainerState(s pod.State) cri.ContainerState {
	switch s {
	case pod.Created:
		return cri.ContainerState_CONTAINER_CREATED
	case pod.Running:
		return cri.ContainerState_CONTAINER_RUNNING
	case pod.Exited:
		return cri.ContainerState_CONTAINER_EXITED
	}
	return cri.ContainerState_CONTAINER_UNKNOWN
}

// nanoseconds is a time as the CRI counts, and 0 for one that has not come.
func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
