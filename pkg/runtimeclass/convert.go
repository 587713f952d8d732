package runtimeclass

import (
	nodev1 "k8s.io/api/node/v1"
	nodev1alpha1 "k8s.io/api/node/v1alpha1"
	nodev1beta1 "k8s.io/api/node/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is the kind of a class in all three versions.
const Kind = "RuntimeClass"

// FromV1alpha1 converts a class of node.k8s.io/v1alpha1, where the handler is
// spec.runtimeHandler. Nothing is lost: ToV1alpha1 leads back.
func FromV1alpha1(in *nodev1alpha1.RuntimeClass) *nodev1.RuntimeClass {
	if in == nil {
		return nil
	}
	in = in.DeepCopy()
	return &nodev1.RuntimeClass{
		TypeMeta: typeMeta(nodev1.SchemeGroupVersion), ObjectMeta: in.ObjectMeta, Handler: in.Spec.RuntimeHandler,
		Overhead: (*nodev1.Overhead)(in.Spec.Overhead), Scheduling: (*nodev1.Scheduling)(in.Spec.Scheduling),
	}
}

// FromV1beta1 converts a class of node.k8s.io/v1beta1, which differs from v1 in
// its name only.
func FromV1beta1(in *nodev1beta1.RuntimeClass) *nodev1.RuntimeClass {
	if in == nil {
		return nil
	}
	in = in.DeepCopy()
	return &nodev1.RuntimeClass{
		TypeMeta: typeMeta(nodev1.SchemeGroupVersion), ObjectMeta: in.ObjectMeta, Handler: in.Handler,
		Overhead: (*nodev1.Overhead)(in.Overhead), Scheduling: (*nodev1.Scheduling)(in.Scheduling),
	}
}

// ToV1alpha1 converts a class for those who read node.k8s.io/v1alpha1.
func ToV1alpha1(in *nodev1.RuntimeClass) *nodev1alpha1.RuntimeClass {
	if in == nil {
		return nil
	}
	in = in.DeepCopy()
	return &nodev1alpha1.RuntimeClass{
		TypeMeta: typeMeta(nodev1alpha1.SchemeGroupVersion), ObjectMeta: in.ObjectMeta,
		Spec: nodev1alpha1.RuntimeClassSpec{
			RuntimeHandler: in.Handler,
			Overhead:       (*nodev1alpha1.Overhead)(in.Overhead), Scheduling: (*nodev1alpha1.Scheduling)(in.Scheduling),
		},
	}
}

// ToV1beta1 converts a class for those who read node.k8s.io/v1beta1.
func ToV1beta1(in *nodev1.RuntimeClass) *nodev1beta1.RuntimeClass {
	if in == nil {
		return nil
	}
	in = in.DeepCopy()
	return &nodev1beta1.RuntimeClass{
		TypeMeta: typeMeta(nodev1beta1.SchemeGroupVersion), ObjectMeta: in.ObjectMeta, Handler: in.Handler,
		Overhead: (*nodev1beta1.Overhead)(in.Overhead), Scheduling: (*nodev1beta1.Scheduling)(in.Scheduling),
	}
}

func typeMeta(v schema.GroupVersion) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: v.String(), Kind: Kind}
}
