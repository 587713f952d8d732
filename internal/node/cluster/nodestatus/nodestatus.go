// Package nodestatus works out what a Node object says of this machine, and reads
// from the machine what does not change. It talks to nobody.
package nodestatus

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KubeletVersion is the release of Kubernetes whose kubelet the node behaves as.
// What follows the plus is no part of the order of versions, so that nothing takes
// it for an older one.
const KubeletVersion = "v1.36.3+fairlead"

// Declared are the features that a kubelet of KubeletVersion declares (KEP-5328) and that this node
// has, too: the scheduler and admission send nothing that needs another one. Of a kubelet's,
// ExtendWebSocketsToKubelet is not among them: for nodes without it the API server turns WebSockets
// into SPDY, which every runtime speaks.
var Declared = []string{
	"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits",
}

// MaxImages is how many a Node object has if nothing is said: the largest, which are those that a
// scheduler should know of.
const MaxImages = 50

// maxImageNames is how many names an image has there.
const maxImageNames = 5

// Facts are what there is to say of a node.
type Facts struct {
	Capacity, Allocatable corev1.ResourceList
	Addresses             []corev1.NodeAddress
	Info                  corev1.NodeSystemInfo
	Port                  int32 // of the node's API; 0 for none
	Images                []corev1.ContainerImage
	MaxImages             *int                      // that are told; nil is MaxImages, less than 0 any number
	Volumes               []corev1.UniqueVolumeName // in use
	Declared              []string                  // features of this node agent
	Config                *corev1.NodeConfigStatus
	Runtime               Runtime
	Pressure              Pressure
	// NotReady is why no pods can be run, beside what the runtime says.
	NotReady []string
}

// Runtime is what the container runtime has said last.
type Runtime struct {
	Handlers []corev1.NodeRuntimeHandler
	Features *corev1.NodeFeatures
	NotReady []string // why it cannot run pods, or their network cannot be made
}

// Pressure is what there is too little of.
type Pressure struct{ Memory, Disk, PIDs bool }

// Of is what is to be said of a node. Conditions of others are not in it: had are
// those that the Node has, from which times are kept.
func Of(f Facts, had []corev1.NodeCondition, now time.Time) corev1.NodeStatus {
	return corev1.NodeStatus{
		Capacity: f.Capacity, Allocatable: f.Allocatable,
		Conditions: Conditions(f, had, now),
		Addresses:  f.Addresses,
		DaemonEndpoints: corev1.NodeDaemonEndpoints{
			KubeletEndpoint: corev1.DaemonEndpoint{Port: f.Port},
		},
		NodeInfo: f.Info, Images: largest(f.Images, f.MaxImages),
		VolumesInUse:     slices.Sorted(slices.Values(f.Volumes)),
		Config:           f.Config,
		RuntimeHandlers:  handlers(f.Runtime.Handlers),
		Features:         f.Runtime.Features,
		DeclaredFeatures: slices.Sorted(slices.Values(f.Declared)),
	}
}

// Conditions are those that a node says of itself.
func Conditions(f Facts, had []corev1.NodeCondition, now time.Time) []corev1.NodeCondition {
	out := []corev1.NodeCondition{
		pressure(corev1.NodeMemoryPressure, f.Pressure.Memory,
			sentence{"KubeletHasInsufficientMemory", "kubelet has insufficient memory available"},
			sentence{"KubeletHasSufficientMemory", "kubelet has sufficient memory available"}),
		pressure(corev1.NodeDiskPressure, f.Pressure.Disk,
			sentence{"KubeletHasDiskPressure", "kubelet has disk pressure"},
			sentence{"KubeletHasNoDiskPressure", "kubelet has no disk pressure"}),
		pressure(corev1.NodePIDPressure, f.Pressure.PIDs,
			sentence{"KubeletHasInsufficientPID", "kubelet has insufficient PID available"},
			sentence{"KubeletHasSufficientPID", "kubelet has sufficient PID available"}),
		ready(append(slices.Clone(f.Runtime.NotReady), f.NotReady...)),
	}
	for i := range out {
		c := &out[i]
		c.LastHeartbeatTime, c.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
		for _, was := range had {
			if was.Type == c.Type && was.Status == c.Status {
				c.LastTransitionTime = was.LastTransitionTime
			}
		}
	}
	return out
}

// sentence is a reason and a message, in the words that a kubelet has for them:
// programs look for them.
type sentence struct{ reason, message string }

func pressure(of corev1.NodeConditionType, is bool, bad, good sentence) corev1.NodeCondition {
	if is {
		return corev1.NodeCondition{Type: of, Status: corev1.ConditionTrue, Reason: bad.reason, Message: bad.message}
	}
	return corev1.NodeCondition{Type: of, Status: corev1.ConditionFalse, Reason: good.reason, Message: good.message}
}

func ready(not []string) corev1.NodeCondition {
	if len(not) > 0 {
		return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: strings.Join(not, "; ")}
	}
	return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}
}

// largest are the images that are said. Equal sets give equal lists.
func largest(images []corev1.ContainerImage, most *int) []corev1.ContainerImage {
	out := make([]corev1.ContainerImage, 0, len(images))
	for _, i := range images {
		i.Names = slices.Sorted(slices.Values(i.Names))
		i.Names = i.Names[:min(len(i.Names), maxImageNames)]
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b corev1.ContainerImage) int {
		return cmp.Or(cmp.Compare(b.SizeBytes, a.SizeBytes), slices.Compare(a.Names, b.Names))
	})
	switch {
	case most == nil:
		return out[:min(len(out), MaxImages)]
	case *most < 0:
		return out
	}
	return out[:min(len(out), *most)]
}

func handlers(of []corev1.NodeRuntimeHandler) []corev1.NodeRuntimeHandler {
	return slices.SortedFunc(slices.Values(of), func(a, b corev1.NodeRuntimeHandler) int { return cmp.Compare(a.Name, b.Name) })
}
