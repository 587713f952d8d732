package honoured

import (
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	nodev1 "k8s.io/api/node/v1"
	nodev1alpha1 "k8s.io/api/node/v1alpha1"
	nodev1beta1 "k8s.io/api/node/v1beta1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"fairlead.run/internal/node/manifest/fields"
)

var types = map[string]reflect.Type{
	"v1 Pod":                             reflect.TypeFor[corev1.Pod](),
	"v1 ConfigMap":                       reflect.TypeFor[corev1.ConfigMap](),
	"v1 Secret":                          reflect.TypeFor[corev1.Secret](),
	"apps/v1 Deployment":                 reflect.TypeFor[appsv1.Deployment](),
	"apps/v1 ReplicaSet":                 reflect.TypeFor[appsv1.ReplicaSet](),
	"apps/v1 DaemonSet":                  reflect.TypeFor[appsv1.DaemonSet](),
	"apps/v1 StatefulSet":                reflect.TypeFor[appsv1.StatefulSet](),
	"batch/v1 Job":                       reflect.TypeFor[batchv1.Job](),
	"batch/v1 CronJob":                   reflect.TypeFor[batchv1.CronJob](),
	"v1 PersistentVolumeClaim":           reflect.TypeFor[corev1.PersistentVolumeClaim](),
	"v1 Namespace":                       reflect.TypeFor[corev1.Namespace](),
	"v1 Service":                         reflect.TypeFor[corev1.Service](),
	"v1 ServiceAccount":                  reflect.TypeFor[corev1.ServiceAccount](),
	"extensions/v1beta1 Deployment":      reflect.TypeFor[extensionsv1beta1.Deployment](),
	"node.k8s.io/v1 RuntimeClass":        reflect.TypeFor[nodev1.RuntimeClass](),
	"node.k8s.io/v1beta1 RuntimeClass":   reflect.TypeFor[nodev1beta1.RuntimeClass](),
	"scheduling.k8s.io/v1 PriorityClass": reflect.TypeFor[schedulingv1.PriorityClass](),
	"node.k8s.io/v1alpha1 RuntimeClass":  reflect.TypeFor[nodev1alpha1.RuntimeClass](),
}

// TestTablesNameRealFields keeps the table, and so the user guide, free of
// fields that Kubernetes does not have.
func TestTablesNameRealFields(t *testing.T) {
	for kind, table := range Tables() {
		root, ok := types[kind]
		if !ok {
			t.Errorf("%s: the test does not know its type", kind)
			continue
		}
		for _, f := range table {
			if !exists(root, f.Path) {
				t.Errorf("%s: there is no field %s", kind, f.Path)
			}
		}
	}
}

func exists(t reflect.Type, path string) bool {
	for step := range strings.SplitSeq(path, ".") {
		t = deref(t)
		if t.Kind() == reflect.Map {
			t = t.Elem()
			continue
		}
		if t.Kind() != reflect.Struct {
			return false
		}
		next, ok := fields.Names(t)[strings.TrimSuffix(step, "[]")]
		if !ok {
			return false
		}
		t = deref(next)
		if strings.HasSuffix(step, "[]") {
			if t.Kind() != reflect.Slice {
				return false
			}
			t = t.Elem()
		}
	}
	return true
}

func deref(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// TestUnknownToTheTableIsRefused sets every field of a Pod that the table does
// not hold, one at a time, and wants each refused.
func TestUnknownToTheTableIsRefused(t *testing.T) {
	table := tables["v1 Pod"]
	known := map[string]bool{}
	for _, f := range table {
		for p := f.Path; p != ""; p = parent(p) {
			known[strings.TrimSuffix(p, "[]")] = true
		}
	}
	checked := 0
	for name := range fields.Names(reflect.TypeFor[corev1.PodSpec]()) {
		if known["spec."+name] {
			continue
		}
		checked++
		found, _ := Unhonoured(table, map[string]any{"spec": map[string]any{name: map[string]any{"x": true}}})
		if len(found) != 1 || found[0].Path != "spec."+name {
			t.Errorf("spec.%s: %v", name, found)
		}
	}
	if checked < 5 {
		t.Errorf("only %d fields were checked", checked)
	}
}
