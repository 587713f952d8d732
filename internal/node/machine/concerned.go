package machine

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/podspec"
)

// concerned are the pods that refer to what is another thing in new manifests, or is not there
// any more. That they are written otherwise themselves is for the agent to see.
func concerned(pods []*corev1.Pod, before, now *manifest.Objects) []types.UID {
	if before == nil || now == nil { // nothing was read before, or nothing is new
		return nil
	}
	var out []types.UID
	for _, p := range pods {
		if concerns(p, before, now) {
			out = append(out, p.UID)
		}
	}
	return out
}

func concerns(p *corev1.Pod, before, now *manifest.Objects) bool {
	refers := podspec.ReferencesOf(p)
	claims := map[string]bool{}
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			claims[v.PersistentVolumeClaim.ClaimName] = true
		}
	}
	class := p.Spec.RuntimeClassName
	return anotherOf(p.Namespace, refers.ConfigMaps, before.ConfigMaps, now.ConfigMaps) ||
		anotherOf(p.Namespace, refers.Secrets, before.Secrets, now.Secrets) ||
		anotherOf(p.Namespace, claims, before.Claims, now.Claims) ||
		class != nil && !equality.Semantic.DeepEqual(before.Classes[*class], now.Classes[*class])
}

// anotherOf says that one of those objects is not what it was.
func anotherOf[T any](namespace string, names map[string]bool, before, now map[manifest.Key]*T) bool {
	for name := range names {
		k := manifest.Key{Namespace: namespace, Name: name}
		if !equality.Semantic.DeepEqual(before[k], now[k]) {
			return true
		}
	}
	return false
}
