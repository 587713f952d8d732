package strays

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/ledger"
	"fairlead.run/internal/node/source"
)

// Search is where an agent looks for what one before it has left. All fields are required.
type Search struct {
	Ledger      ledger.Ledger
	Root, State string                            // the persistent folder of pods, and that on a tmpfs
	Mine        func(*runtimeapi.PodSandbox) bool // others belong to another agent
	Failed      func(error)                       // is told what could not be looked through
}

// Nowhere is the source of pods of which only folders are left: any could be theirs.
const Nowhere = "nowhere"

// Left are the pods of which there is something: a sandbox, of which the list has all, or no
// more than a page of the ledger, and volumes, as after a reboot; or volumes alone, as when
// a power cut has left an empty page in the ledger. No more is known of them than their
// names and where they came from.
func (s Search) Left(list []*runtimeapi.PodSandbox) map[types.UID]*corev1.Pod {
	out, there := map[types.UID]*corev1.Pod{}, map[string]bool{}
	for uid, r := range s.Ledger.All() {
		out[uid] = leftOver(metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name, UID: uid}, r.Source)
	}
	for _, box := range list {
		there[box.GetMetadata().GetUid()] = true
		delete(out, types.UID(box.GetMetadata().GetUid())) // if it is not mine, it may have been taken over
	}
	for _, box := range list {
		if m := box.GetMetadata(); s.Mine(box) {
			uid := types.UID(m.GetUid())
			out[uid] = leftOver(metav1.ObjectMeta{Namespace: m.GetNamespace(), Name: m.GetName(), UID: uid}, box.GetAnnotations()[source.SourceAnnotation])
		}
	}
	if s.Ledger == (ledger.Ledger{}) {
		return out // nothing outlives an agent without one, and folders are others'
	}
	found, err := Find(s.Root, s.State, func(uid string) bool { return there[uid] || s.Ledger.Knows(types.UID(uid)) })
	if err != nil {
		s.Failed(err)
	}
	for _, uid := range found {
		out[types.UID(uid)] = leftOver(metav1.ObjectMeta{UID: types.UID(uid)}, Nowhere)
	}
	return out
}

// leftOver is a pod of which nothing is known but its name and where it came from.
func leftOver(meta metav1.ObjectMeta, from string) *corev1.Pod {
	if from != "" {
		meta.Annotations = map[string]string{source.SourceAnnotation: from}
	}
	return &corev1.Pod{ObjectMeta: meta}
}
