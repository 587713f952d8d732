package runtimeclass_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	nodev1alpha1 "k8s.io/api/node/v1alpha1"
	nodev1beta1 "k8s.io/api/node/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/pkg/runtimeclass"
)

// diff compares exactly: nil is not empty, and 0.5Gi is not 512Mi.
func diff(a, b any) string {
	if reflect.DeepEqual(a, b) {
		return ""
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return fmt.Sprintf("%s\n%s\n(%+v and %+v)", x, y, a, b)
}

// full is a class with every field set.
func full() *nodev1.RuntimeClass {
	seconds := int64(30)
	return &nodev1.RuntimeClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: "node.k8s.io/v1", Kind: "RuntimeClass"},
		ObjectMeta: metav1.ObjectMeta{Name: "gvisor", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
		Handler:    "runsc",
		Overhead:   &nodev1.Overhead{PodFixed: corev1.ResourceList{"memory": resource.MustParse("64Mi"), "cpu": resource.MustParse("250m")}},
		Scheduling: &nodev1.Scheduling{
			NodeSelector: map[string]string{"runtime": "gvisor"},
			Tolerations: []corev1.Toleration{
				{Key: "sandbox", Operator: corev1.TolerationOpEqual, Value: "gvisor", Effect: corev1.TaintEffectNoSchedule},
				{Key: "slow", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds},
			},
		},
	}
}

func TestConversionsLeadBack(t *testing.T) {
	for name, in := range map[string]*nodev1.RuntimeClass{
		"full":    full(),
		"minimal": {TypeMeta: full().TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: "a"}, Handler: "runc"},
		"empty parts": {
			TypeMeta: full().TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{}}, Handler: "runc",
			Overhead:   &nodev1.Overhead{PodFixed: corev1.ResourceList{}},
			Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{}, Tolerations: []corev1.Toleration{}},
		},
		"nothing": nil,
	} {
		t.Run(name, func(t *testing.T) {
			if diff := diff(in, runtimeclass.FromV1alpha1(runtimeclass.ToV1alpha1(in))); diff != "" {
				t.Errorf("by v1alpha1 it changed:\n%s", diff)
			}
			if diff := diff(in, runtimeclass.FromV1beta1(runtimeclass.ToV1beta1(in))); diff != "" {
				t.Errorf("by v1beta1 it changed:\n%s", diff)
			}
		})
	}
}

func TestConversionsNameTheirVersion(t *testing.T) {
	in := &nodev1.RuntimeClass{Handler: "runc"} // as a typed client returns it, without a version
	if got := runtimeclass.ToV1alpha1(in); got.APIVersion != "node.k8s.io/v1alpha1" || got.Kind != "RuntimeClass" || got.Spec.RuntimeHandler != "runc" {
		t.Errorf("v1alpha1 is %+v", got)
	}
	if got := runtimeclass.ToV1beta1(in); got.APIVersion != "node.k8s.io/v1beta1" || got.Kind != "RuntimeClass" || got.Handler != "runc" {
		t.Errorf("v1beta1 is %+v", got)
	}
	if got := runtimeclass.FromV1alpha1(&nodev1alpha1.RuntimeClass{}); got.APIVersion != "node.k8s.io/v1" || got.Kind != "RuntimeClass" {
		t.Errorf("v1 is %+v", got)
	}
	if got := runtimeclass.FromV1beta1(&nodev1beta1.RuntimeClass{}); got.APIVersion != "node.k8s.io/v1" || got.Overhead != nil || got.Scheduling != nil {
		t.Errorf("v1 is %+v", got)
	}
}

// seeds are objects of any version: fields of another one are unknown, and
// left out by the decoder.
var seeds = []string{
	`{}`,
	`{"metadata":{"name":"native"},"handler":"runc","spec":{"runtimeHandler":"runc"}}`,
	`{"metadata":{"name":"a","labels":{"x":"y"},"finalizers":["a/b"]},"overhead":{"podFixed":{"memory":"1.5Gi","cpu":"1e-3"}},"spec":{"overhead":{"podFixed":{"cpu":"0.1"}}}}`,
	`{"scheduling":{"nodeSelector":{"a":"b"},"tolerations":[{"key":"k","operator":"Exists","effect":"NoExecute","tolerationSeconds":-1}]}}`,
	`{"spec":{"runtimeHandler":"kata","scheduling":{"nodeSelector":{},"tolerations":[{}]}}}`,
	`{"apiVersion":"node.k8s.io/v1beta1","kind":"RuntimeClass","metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","managedFields":[{"fieldsV1":{"f:a":{}}}]}}`,
}

// monstrous finds quantities that an API server would take minutes to read.
var monstrous = regexp.MustCompile(`[eE][+-]?[0-9]{3}`)

func decode(data []byte, into any) bool {
	return !monstrous.Match(data) && json.Unmarshal(data, into) == nil
}

func FuzzConvertFromV1(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var in nodev1.RuntimeClass
		if !decode(data, &in) {
			return
		}
		before := in.DeepCopy()
		alpha, beta := runtimeclass.FromV1alpha1(runtimeclass.ToV1alpha1(&in)), runtimeclass.FromV1beta1(runtimeclass.ToV1beta1(&in))
		if diff := diff(before, &in); diff != "" {
			t.Errorf("the input was changed:\n%s", diff)
		}
		in.TypeMeta = alpha.TypeMeta
		if diff := diff(&in, alpha); diff != "" {
			t.Errorf("by v1alpha1 it changed:\n%s", diff)
		}
		if diff := diff(&in, beta); diff != "" {
			t.Errorf("by v1beta1 it changed:\n%s", diff)
		}
	})
}

func FuzzConvertFromOlder(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var alpha nodev1alpha1.RuntimeClass
		var beta nodev1beta1.RuntimeClass
		if decode(data, &alpha) {
			before := alpha.DeepCopy()
			back := runtimeclass.ToV1alpha1(runtimeclass.FromV1alpha1(&alpha))
			before.TypeMeta, alpha.TypeMeta = back.TypeMeta, back.TypeMeta
			if diff := diff(before, &alpha) + diff(&alpha, back); diff != "" {
				t.Errorf("v1alpha1 changed:\n%s", diff)
			}
		}
		if decode(data, &beta) {
			before := beta.DeepCopy()
			back := runtimeclass.ToV1beta1(runtimeclass.FromV1beta1(&beta))
			before.TypeMeta, beta.TypeMeta = back.TypeMeta, back.TypeMeta
			if diff := diff(before, &beta) + diff(&beta, back); diff != "" {
				t.Errorf("v1beta1 changed:\n%s", diff)
			}
		}
	})
}
