package admission

import (
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/ledger"
)

// Room says which pods there is room for. It is asked by one goroutine at a time, in the
// order of pods, and is given those that were let in and have not ended, with their
// statuses. It must not wait.
type Room interface {
	// Admit lets a pod in. An error that is a *Refusal says why not; with one that has
	// Again the pod is tried once more whenever another one has ended. Leaving are those that
	// have not ended, and that nobody wants any more: running does not have them.
	Admit(pod *corev1.Pod, running, leaving []*corev1.Pod) (Displaced, error)
	// Resize says whether a pod that runs can have what it asks for by now: an empty
	// reason if so, else one of the condition PodResizePending.
	Resize(pod *corev1.Pod, others []*corev1.Pod) (reason, message string)
}

// Refusal is why a pod is not let in.
type Refusal = ledger.Refusal

// Displaced are pods that have to end so that another one can run.
type Displaced struct {
	Pods []*corev1.Pod
	Why  Refusal
	// Behind are such as end in any case.
	Behind []*corev1.Pod
}

// everything has room for all pods.
type everything struct{}

func (everything) Admit(_ *corev1.Pod, _, _ []*corev1.Pod) (Displaced, error) {
	return Displaced{}, nil
}
func (everything) Resize(*corev1.Pod, []*corev1.Pod) (reason, message string) { return "", "" }
