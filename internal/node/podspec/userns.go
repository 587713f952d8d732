package podspec

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/userids"
)

// OwnUsers says that a pod is to have a user namespace of its own.
func OwnUsers(pod *corev1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

// UserNamespace is that of a pod which has the ids of the node from first on; nil for 0.
func UserNamespace(first uint32) *runtimeapi.UserNamespace {
	if first == 0 {
		return nil
	}
	ids := []*runtimeapi.IDMapping{{HostId: first, Length: userids.Length}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}
}

// Mapped has files of mounts belong to those in the pod to whom they belong on the node,
// where the pod has a user namespace. Images are the runtime's to map.
func Mapped(c *Context, mounts []*runtimeapi.Mount) []*runtimeapi.Mount {
	if c.Userns == nil {
		return mounts
	}
	for _, m := range mounts {
		if m.GetImage() == nil {
			m.UidMappings, m.GidMappings = c.Userns.GetUids(), c.Userns.GetGids()
		}
	}
	return mounts
}
