package manifests

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	nodev1alpha1 "k8s.io/api/node/v1alpha1"
	nodev1beta1 "k8s.io/api/node/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/api/v1alpha1"
)

// kinds make an empty object of each version and kind that is read.
var kinds = map[string]func() metav1.Object{
	"v1 Pod":                                   func() metav1.Object { return &corev1.Pod{} },
	"v1 PodTemplate":                           func() metav1.Object { return &corev1.PodTemplate{} },
	"v1 ReplicationController":                 func() metav1.Object { return &corev1.ReplicationController{} },
	"v1 Namespace":                             func() metav1.Object { return &corev1.Namespace{} },
	"v1 Node":                                  func() metav1.Object { return &corev1.Node{} },
	"apps/v1 Deployment":                       func() metav1.Object { return &appsv1.Deployment{} },
	"apps/v1 StatefulSet":                      func() metav1.Object { return &appsv1.StatefulSet{} },
	"apps/v1 DaemonSet":                        func() metav1.Object { return &appsv1.DaemonSet{} },
	"apps/v1 ReplicaSet":                       func() metav1.Object { return &appsv1.ReplicaSet{} },
	"batch/v1 Job":                             func() metav1.Object { return &batchv1.Job{} },
	"batch/v1 CronJob":                         func() metav1.Object { return &batchv1.CronJob{} },
	"node.k8s.io/v1 RuntimeClass":              func() metav1.Object { return &nodev1.RuntimeClass{} },
	"node.k8s.io/v1beta1 RuntimeClass":         func() metav1.Object { return &nodev1beta1.RuntimeClass{} },
	"node.k8s.io/v1alpha1 RuntimeClass":        func() metav1.Object { return &nodev1alpha1.RuntimeClass{} },
	"fairlead.run/v1alpha1 RuntimeClassPolicy": func() metav1.Object { return &v1alpha1.RuntimeClassPolicy{} },
}

// Kinds lists what is read, as "apps/v1 Deployment", sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// versionsOf lists the versions of a kind that are read, sorted.
func versionsOf(kind string) (out []string) {
	for _, k := range Kinds() {
		if version, ok := strings.CutSuffix(k, " "+kind); ok {
			out = append(out, version)
		}
	}
	return out
}

// clusterwide are the kinds whose objects have no namespace.
var clusterwide = []string{"Namespace", "Node", "RuntimeClass", "RuntimeClassPolicy"}

// Template is the pod that an object is, or makes, and where in the object it
// stands: "spec.template." for a Deployment, empty for a Pod. Nil if it makes
// none.
func Template(o metav1.Object) (*corev1.Pod, string) {
	var t *corev1.PodTemplateSpec
	at := "spec.template."
	switch o := o.(type) {
	case *corev1.Pod:
		return o, ""
	case *corev1.PodTemplate:
		t, at = &o.Template, "template."
	case *corev1.ReplicationController:
		t = o.Spec.Template
	case *appsv1.Deployment:
		t = &o.Spec.Template
	case *appsv1.StatefulSet:
		t = &o.Spec.Template
	case *appsv1.DaemonSet:
		t = &o.Spec.Template
	case *appsv1.ReplicaSet:
		t = &o.Spec.Template
	case *batchv1.Job:
		t = &o.Spec.Template
	case *batchv1.CronJob:
		t, at = &o.Spec.JobTemplate.Spec.Template, "spec.jobTemplate.spec.template."
	}
	if t == nil {
		return nil, ""
	}
	pod := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	pod.Name, pod.Namespace = o.GetName(), o.GetNamespace()
	return pod, at
}
