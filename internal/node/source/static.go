package source

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/manifest"
)

// Annotations of static pods, as a kubelet writes them.
const (
	HashAnnotation   = "kubernetes.io/config.hash"
	SourceAnnotation = "kubernetes.io/config.source"
)

// API is the source of pods that come from an API server: those without a SourceAnnotation.
const API = "api"

// Of is where a pod comes from.
func Of(p *corev1.Pod) string { return cmp.Or(p.Annotations[SourceAnnotation], API) }

// Node is whose pods they become.
type Node struct {
	Name string
	// Cluster says that the node belongs to a cluster, where each node may have the
	// same manifests: the names of pods end in "-" and the name of the node, and
	// no taint of the node evicts them.
	Cluster bool
}

// Static makes static pods of the pods of a set: copies that have what an API server
// would have given them.
//
// The UID follows from the node and from what is written of the pod. So an agent
// that was started anew knows the pod again, and a pod of which something was
// changed is another pod, whichever file it is in.
func Static(pods []*manifest.Pod, node Node) []*manifest.Pod {
	out := make([]*manifest.Pod, len(pods))
	for i, p := range pods {
		made := *p
		made.Pod = static(p.Pod, node, cmp.Or(p.From, File))
		out[i] = &made
	}
	return out
}

func static(from *corev1.Pod, node Node, kind string) *corev1.Pod {
	pod := from.DeepCopy()
	pod.UID = UID(from, node.Name)
	pod.Spec.NodeName = node.Name
	capacity.DefaultWhole(pod)
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[HashAnnotation] = string(pod.UID)
	pod.Annotations[SourceAnnotation] = kind
	if node.Cluster {
		pod.Name += "-" + strings.ToLower(node.Name)
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
	}
	return pod
}

// UID is the UID of a pod that no API server knows: the same for the same pod on
// the same node, and as long as an API server's.
func UID(pod *corev1.Pod, node string) types.UID {
	// What a kubelet or an API server adds is not in a manifest, so all of it counts.
	text, err := json.Marshal(struct {
		Node string
		Meta any
		Spec any
	}{node, pod.ObjectMeta, pod.Spec})
	if err != nil {
		panic(err) // it was JSON before
	}
	sum := sha256.Sum256(text)
	sum[6] = sum[6]&0x0f | 0x80 // a UUID of version 8: one's own
	sum[8] = sum[8]&0x3f | 0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]))
}
