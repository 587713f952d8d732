package runtimeclass_test

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	nodev1alpha1 "k8s.io/api/node/v1alpha1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/pkg/runtimeclass"
)

func gvisor() *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "gvisor"},
		Handler:    "runsc",
		Overhead:   &nodev1.Overhead{PodFixed: corev1.ResourceList{"memory": resource.MustParse("64Mi")}},
		Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"runtime": "gvisor"}},
	}
}

func podOn(class string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.PodSpec{
		RuntimeClassName: &class,
		Containers: []corev1.Container{{Name: "web", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"memory": resource.MustParse("2Gi")},
		}}},
	}}
}

func ExampleFromV1alpha1() {
	old := &nodev1alpha1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "native"},
		Spec:       nodev1alpha1.RuntimeClassSpec{RuntimeHandler: "runc"},
	}
	class := runtimeclass.FromV1alpha1(old)
	fmt.Println(class.APIVersion, class.Name, class.Handler)
	// Output: node.k8s.io/v1 native runc
}

func ExampleValidate() {
	class := gvisor()
	class.Scheduling.NodeSelector["runtime"] = "gVisor!"
	class.Overhead.PodFixed["memory"] = resource.MustParse("-1")
	for _, fault := range runtimeclass.Validate(class) {
		fmt.Println(fault.Field)
	}
	// Output:
	// overhead.podFixed[memory]
	// scheduling.nodeSelector[runtime]
}

func ExampleAdmission_Create() {
	admission := runtimeclass.Admission{Classes: runtimeclass.NewMap(gvisor())}
	decision, err := admission.Create(podOn("gvisor"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(decision.Pod.Annotations[runtimeclass.AnnotationInjected])
	// Output: {"class":"gvisor","overhead":{"memory":"64Mi"},"nodeSelector":{"runtime":"gvisor"}}
}

func ExampleAdmission_Create_rejected() {
	admission := runtimeclass.Admission{Classes: runtimeclass.NewMap(gvisor())}
	_, err := admission.Create(podOn("gvisr"))
	var r *runtimeclass.Rejection
	if errors.As(err, &r) {
		fmt.Println(r.Reason)
		fmt.Println(r)
	}
	// Output:
	// ClassMissing
	// spec.runtimeClassName: there is no RuntimeClass "gvisr"; there is only gvisor; did you mean gvisor?
}

func ExampleAdmission_Create_legacy() {
	admission := runtimeclass.Admission{
		Classes: runtimeclass.NewMap(gvisor()),
		Legacy:  runtimeclass.Legacy{ContainerdUntrusted: "gvisor"},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{runtimeclass.AnnotationContainerdUntrusted: "true"},
	}}
	decision, err := admission.Create(pod)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(*decision.Pod.Spec.RuntimeClassName)
	fmt.Println(decision.Warnings[0])
	// Output:
	// gvisor
	// metadata.annotations[io.kubernetes.cri.untrusted-workload]: is deprecated; write spec.runtimeClassName: gvisor instead
}

func ExampleExplain() {
	node := func(name, runtime, memory string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"runtime": runtime}},
			Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{"memory": resource.MustParse(memory)}},
		}
	}
	explanation, err := runtimeclass.Explain(runtimeclass.Query{
		Class: gvisor(),
		Pod:   podOn("gvisor"),
		Nodes: []*corev1.Node{node("a", "gvisor", "8Gi"), node("b", "gvisor", "2Gi"), node("c", "runc", "8Gi")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(explanation.Sentence)
	fmt.Println(explanation.Nodes[1].Why[0].Detail)
	// Output:
	// 1/3 nodes: 1 lacks memory, 1 does not match RuntimeClass gvisor (node label runtime is runc, not gvisor)
	// memory: 2112Mi needed, 64Mi of it overhead, and 2Gi free
}
