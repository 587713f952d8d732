package runtimeclass

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// AnnotationInjected is where a pod says what admission has put into it: an
// Injected as JSON. A pod that got nothing does not have it.
const AnnotationInjected = "fairlead.run/runtimeclass-injected"

// Injected is what a pod has from its class and not from its author.
type Injected struct {
	Class string `json:"class"`
	// ChosenBy is what chose the class, if it was not the pod's own field: the
	// name of an annotation, or of a policy. spec.runtimeClassName is injected
	// then, too.
	ChosenBy string `json:"chosenBy,omitempty"`
	// Because is why it chose this one, where there was a choice.
	Because string `json:"because,omitempty"`
	// Overhead is text on purpose: to read or to compare a quantity that somebody
	// made up, such as 1e-1000000000, takes minutes and gigabytes.
	Overhead     map[string]string   `json:"overhead,omitempty"`
	NodeSelector map[string]string   `json:"nodeSelector,omitempty"`
	Tolerations  []corev1.Toleration `json:"tolerations,omitempty"`
}

// InjectedOf reads what was injected into a pod; nil if nothing was. An author
// can write the annotation as well, so it explains and proves nothing.
func InjectedOf(pod *corev1.Pod) (*Injected, error) {
	text, ok := pod.Annotations[AnnotationInjected]
	if !ok {
		return nil, nil
	}
	var in Injected
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return nil, fmt.Errorf("read metadata.annotations[%s] of pod %s/%s: %w", AnnotationInjected, pod.Namespace, pod.Name, err)
	}
	return &in, nil
}

// empty says that nothing was injected.
func (in *Injected) empty() bool {
	return in.ChosenBy == "" && len(in.Overhead)+len(in.NodeSelector)+len(in.Tolerations) == 0
}

// resume adds what an earlier pass injected: webhooks are called again after
// others have changed the pod. Only what is the class's is taken over, so that
// a pod cannot claim more than it could have got.
func (in *Injected) resume(earlier *Injected, class *nodev1.RuntimeClass) {
	if earlier == nil || earlier.Class != in.Class {
		return
	}
	if in.ChosenBy == "" {
		in.ChosenBy, in.Because = earlier.ChosenBy, earlier.Because
	}
	if class.Overhead != nil && len(in.Overhead) == 0 && maps.Equal(earlier.Overhead, texts(class.Overhead.PodFixed)) {
		in.Overhead = texts(class.Overhead.PodFixed)
	}
	if class.Scheduling == nil {
		return
	}
	for key, value := range earlier.NodeSelector {
		if v, ok := class.Scheduling.NodeSelector[key]; ok && v == value {
			if in.NodeSelector == nil {
				in.NodeSelector = map[string]string{}
			}
			in.NodeSelector[key] = value
		}
	}
	// In the order of the class, whichever pass they came in.
	were := slices.Concat(earlier.Tolerations, in.Tolerations)
	in.Tolerations = without(class.Scheduling.Tolerations, without(class.Scheduling.Tolerations, were))
}

// note writes or takes away the annotation of a pod.
func (in *Injected) note(pod *corev1.Pod) {
	if in.empty() {
		delete(pod.Annotations, AnnotationInjected)
		return
	}
	text, err := json.Marshal(in)
	if err != nil { // strings always encode
		panic("runtimeclass: encode what was injected: " + err.Error())
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[AnnotationInjected] = string(text)
}

// texts is a list of resources as Kubernetes writes it.
func texts(list corev1.ResourceList) map[string]string {
	var out map[string]string
	for name, q := range list {
		if out == nil {
			out = map[string]string{}
		}
		out[string(name)] = q.String()
	}
	return out
}

// sameResources compares amounts, however they are written. Nil is like empty.
func sameResources(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}

// sameOverhead compares the overhead of a pod with that of its class. API servers round
// the one up to whole thousandths, and leave the other as it is.
func sameOverhead(pod, class corev1.ResourceList) bool {
	return maps.EqualFunc(pod, class, func(has, wants resource.Quantity) bool {
		if has.Cmp(wants) == 0 {
			return true
		}
		wants = wants.DeepCopy()
		wants.RoundUp(resource.Milli)
		return has.Cmp(wants) == 0
	})
}
