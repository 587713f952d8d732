package resources

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/node/admission"
	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/priority"
)

// Admit implements admission.Room.
func (k *Keeper) Admit(pod *corev1.Pod, running, leaving []*corev1.Pod) (admission.Displaced, error) {
	pod, running = k.weighed(pod), k.weighedAll(running)
	if err := errors.Join(k.shutdown.Admit(pod), k.eviction.Admit(pod)); err != nil {
		return admission.Displaced{}, k.refusal(pod, err)
	}
	node := k.object()
	refused := capacity.Admit(pod, node, running)
	if refused == nil {
		return admission.Displaced{Behind: behind(pod, node, running, leaving)}, nil
	}
	displace := capacity.Displace
	if k.cfg.Manifests {
		displace = capacity.Preempt
	}
	victims, err := displace(pod, refused, running)
	if err != nil {
		return admission.Displaced{}, k.refusal(pod, err)
	}
	var short *capacity.Refusal
	if errors.As(refused, &short) && len(short.Short) > 0 {
		k.stats.preemptions.Add(float64(len(victims)), string(short.Short[0].Resource))
	}
	why := admission.Refusal{Reason: capacity.ReasonPreempted, Message: capacity.MessagePreempted, Disrupts: capacity.TargetPreempted}
	if !priority.Critical(pod) {
		why.Message = fmt.Sprintf("The pod %s/%s is more important (priority %d), and has its place", pod.Namespace, pod.Name, priority.Of(pod))
		why.Disrupts = why.Message
	}
	stay := slices.DeleteFunc(slices.Clone(running), func(p *corev1.Pod) bool {
		return slices.ContainsFunc(victims, func(v *corev1.Pod) bool { return v.UID == p.UID })
	})
	return admission.Displaced{Pods: victims, Why: why, Behind: behind(pod, node, stay, leaving)}, nil
}

// behind are those of the pods that leave for whose end a pod has to wait that has its place
// beside the others.
func behind(pod *corev1.Pod, node *corev1.Node, running, leaving []*corev1.Pod) []*corev1.Pod {
	for i := range leaving {
		if capacity.Admit(pod, node, slices.Concat(running, leaving[i:])) == nil {
			return leaving[:i]
		}
	}
	return leaving
}

// refusal is one in the words of a gate. On one machine nobody else would find a place
// for the pod, nor would anybody for a static one, so that it is tried again.
func (k *Keeper) refusal(pod *corev1.Pod, err error) error {
	var r *capacity.Refusal
	if !errors.As(err, &r) {
		r = capacity.Unexpected(err)
	}
	k.stats.rejections.Add(1, r.Reason)
	return &admission.Refusal{Reason: r.Reason, Message: r.Message, Rejected: true, Again: k.cfg.Manifests || priority.Static(pod)}
}

// Resize implements admission.Room.
func (k *Keeper) Resize(pod *corev1.Pod, others []*corev1.Pod) (reason, message string) {
	return capacity.Resize(k.weighed(pod), k.object(), k.weighedAll(others))
}

// object is the node as its object would be, with what it has now. Before there is one,
// it has the name and the labels that every node has: static pods do not wait for it.
func (k *Keeper) object() *corev1.Node {
	out := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.cfg.Name, Labels: map[string]string{
		corev1.LabelHostname: k.cfg.Name, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
	}}}
	if n := k.cfg.Node(); n != nil {
		out = *n
	}
	has := maps.Clone(out.Status.Allocatable)
	if has == nil {
		has = corev1.ResourceList{}
	}
	maps.Copy(has, k.node.Allocatable)
	if k.cfg.Elsewhere != nil {
		maps.DeleteFunc(has, func(name corev1.ResourceName, _ resource.Quantity) bool { return k.cfg.Elsewhere(name) })
	}
	out.Status.Allocatable = has
	return &out
}

// weighed is a pod as it counts against others. Where all pods come from manifests, none
// is more important because it does.
func (k *Keeper) weighed(pod *corev1.Pod) *corev1.Pod {
	if !k.cfg.Manifests || pod.Annotations[priority.SourceAnnotation] == "" {
		return pod
	}
	out := *pod
	out.Annotations = maps.Clone(pod.Annotations)
	delete(out.Annotations, priority.SourceAnnotation)
	return &out
}

func (k *Keeper) weighedAll(pods []*corev1.Pod) []*corev1.Pod {
	if !k.cfg.Manifests {
		return pods
	}
	out := make([]*corev1.Pod, len(pods))
	for i, p := range pods {
		out[i] = k.weighed(p)
	}
	return out
}
