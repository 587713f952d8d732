package manifest

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.run/internal/node/manifest/check"
)

func checkDeployment(dep *appsv1.Deployment) []string {
	var faults []string
	if r := dep.Spec.Replicas; r != nil && (*r < 0 || *r > MaxPods) {
		faults = append(faults, fmt.Sprintf("spec.replicas: %d is not between 0 and %d", *r, MaxPods))
	}
	if p := dep.Spec.Template.Spec.RestartPolicy; p != "" && p != corev1.RestartPolicyAlways {
		faults = append(faults, fmt.Sprintf("spec.template.spec.restartPolicy: %q does not fit a Deployment, only Always does", p))
	}
	faults = append(faults, checkSelector(dep)...)
	template := &corev1.Pod{ObjectMeta: dep.Spec.Template.ObjectMeta, Spec: dep.Spec.Template.Spec}
	return append(faults, check.Pod("spec.template.", template)...)
}

func checkSelector(dep *appsv1.Deployment) []string {
	if dep.Spec.Selector == nil {
		return []string{"spec.selector: is required"}
	}
	selector, err := metav1.LabelSelectorAsSelector(dep.Spec.Selector)
	if err != nil {
		return []string{fmt.Sprintf("spec.selector: %v", err)}
	}
	if selector.Empty() {
		return []string{"spec.selector: selects everything; it must name a label of the template"}
	}
	if !selector.Matches(labels.Set(dep.Spec.Template.Labels)) {
		return []string{fmt.Sprintf("spec.selector: %s does not select the template's labels (%s)", selector, labels.Set(dep.Spec.Template.Labels))}
	}
	return nil
}

// replicas makes the pods of a Deployment. Their names are numbered and not
// random, so that they are the same at every run.
func replicas(dep *appsv1.Deployment) []*corev1.Pod {
	n := int32(1)
	if dep.Spec.Replicas != nil {
		n = min(*dep.Spec.Replicas, MaxPods)
	}
	var pods []*corev1.Pod
	for i := range n {
		t := dep.Spec.Template.DeepCopy()
		pod := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
		pod.Name, pod.Namespace = fmt.Sprintf("%s-%d", dep.Name, i), dep.Namespace
		pods = append(pods, pod)
	}
	return pods
}
