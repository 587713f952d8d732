package runtimeclass

import (
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	nodev1alpha1 "k8s.io/api/node/v1alpha1"
	nodev1beta1 "k8s.io/api/node/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FromV1alpha1 converts a class of node.k8s.io/v1alpha1, where the handler is
// spec.runtimeHandler.
func FromV1alpha1(in *nodev1alpha1.RuntimeClass) *nodev1.RuntimeClass {
	in = in.DeepCopy()
	out := &nodev1.RuntimeClass{TypeMeta: typeMeta(), ObjectMeta: in.ObjectMeta, Handler: in.Spec.RuntimeHandler}
	if o := in.Spec.Overhead; o != nil {
		out.Overhead = &nodev1.Overhead{PodFixed: o.PodFixed}
	}
	if s := in.Spec.Scheduling; s != nil {
		out.Scheduling = scheduling(s.NodeSelector, s.Tolerations)
	}
	return out
}

// FromV1beta1 converts a class of node.k8s.io/v1beta1, where the handler is a
// field of its own.
func FromV1beta1(in *nodev1beta1.RuntimeClass) *nodev1.RuntimeClass {
	in = in.DeepCopy()
	out := &nodev1.RuntimeClass{TypeMeta: typeMeta(), ObjectMeta: in.ObjectMeta, Handler: in.Handler}
	if o := in.Overhead; o != nil {
		out.Overhead = &nodev1.Overhead{PodFixed: o.PodFixed}
	}
	if s := in.Scheduling; s != nil {
		out.Scheduling = scheduling(s.NodeSelector, s.Tolerations)
	}
	return out
}

func scheduling(selector map[string]string, tolerations []corev1.Toleration) *nodev1.Scheduling {
	return &nodev1.Scheduling{NodeSelector: selector, Tolerations: tolerations}
}

func typeMeta() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: nodev1.SchemeGroupVersion.String(), Kind: "RuntimeClass"}
}
