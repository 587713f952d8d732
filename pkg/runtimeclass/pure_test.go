package runtimeclass_test

import (
	"reflect"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/pkg/runtimeclass"
)

// shared is what an informer's caches hold, and what is asked of them.
type shared struct {
	class *nodev1.RuntimeClass
	pod   *corev1.Pod
	nodes []*corev1.Node
	used  map[string]corev1.ResourceList
}

// newShared is not copied: a copy of a quantity would have its text cached.
func newShared() shared {
	fits := labelled("runtime=gvisor", runtimeclass.LabelHandlerPrefix+"runsc=true")
	class := full()
	class.Overhead.PodFixed = list("memory=64Mi", "cpu=1e-1")
	class.ManagedFields = []metav1.ManagedFieldsEntry{{Operation: "Apply", FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{}}}
	// A quantity of this form has a pointer within.
	large := resource.MustParse("8Gi")
	large.ToDec()
	allocated := func(n *corev1.Node) { n.Status.Allocatable["memory"] = large }
	return shared{
		class: class,
		pod: pod(onClass("gvisor"), withSelector("zone=a"), requiring("zone", "In", "a"), requesting("memory=1.5Gi", "cpu=2"), noted(runtimeclass.AnnotationCRIOTrusted, "false"),
			noted(runtimeclass.AnnotationInjected, `{"class":"gvisor","nodeSelector":{"runtime":"gvisor"}}`), withTolerations(corev1.Toleration{Key: "own"})),
		nodes: []*corev1.Node{
			node("b", fits, labelled("zone=a"), allocatable("cpu=4", "pods=1"), allocated, tainted("z", "", "NoSchedule"), tainted("a", "", "NoSchedule")),
			node("a", fits, handling("runc"), allocatable("memory=1Gi"), cordoned),
		},
		used: map[string]corev1.ResourceList{"b": list("memory=7.9Gi")},
	}
}

// use calls everything, and returns all that came of it.
func (s shared) use() []any {
	a := runtimeclass.Admission{Classes: runtimeclass.NewMap(s.class), Legacy: runtimeclass.Legacy{CRIOUntrusted: "gvisor"}}
	d, err := a.Create(s.pod)
	d.Class = nil // the cache's own, by its contract
	q := runtimeclass.Query{Class: s.class, Pod: s.pod, Nodes: s.nodes, Used: s.used}
	matches, matchErr := runtimeclass.Match(q)
	e, explainErr := runtimeclass.Explain(q)
	alpha, beta := runtimeclass.ToV1alpha1(s.class), runtimeclass.ToV1beta1(s.class)
	injected, readErr := runtimeclass.InjectedOf(s.pod)
	return []any{
		d, err, matches, matchErr, e, explainErr, injected, readErr,
		alpha, beta, runtimeclass.FromV1alpha1(alpha), runtimeclass.FromV1beta1(beta),
		runtimeclass.Validate(s.class), runtimeclass.ValidateUpdate(s.class, s.class), runtimeclass.ValidateV1alpha1(alpha),
		a.Validate(s.pod), a.Update(s.pod, s.pod),
	}
}

// Objects of an informer are used by many at once, and nobody copies them first.
// The race detector would see a write even if it changed nothing.
func TestInputsAreNeverChanged(t *testing.T) {
	s := newShared()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				s.use()
			}
		})
	}
	wg.Wait()
	if want := newShared(); !reflect.DeepEqual(want, s) {
		t.Errorf("was changed:\n%s", diff(want, s))
	}
}

// What is returned can be changed by whoever gets it.
func TestResultsShareNothing(t *testing.T) {
	s := newShared()
	want := newShared()
	for _, result := range s.use() {
		if result != nil {
			scramble(reflect.ValueOf(result), map[uintptr]bool{})
		}
	}
	if !reflect.DeepEqual(want, s) {
		t.Errorf("a change of a result was seen in the input:\n%s%s%s", diff(want.class, s.class), diff(want.pod, s.pod), diff(want.nodes, s.nodes))
	}
}

// scramble changes all that can be reached by pointers, maps and slices.
func scramble(v reflect.Value, seen map[uintptr]bool) {
	switch v.Kind() {
	case reflect.Interface:
		if !v.IsNil() {
			scramble(v.Elem(), seen)
		}
	case reflect.Pointer:
		if v.IsNil() || seen[v.Pointer()] {
			return
		}
		seen[v.Pointer()] = true
		scramble(v.Elem(), seen)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				scramble(v.Field(i), seen)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			scramble(v.Index(i), seen)
			if v.Index(i).CanSet() {
				v.Index(i).SetZero()
			}
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			scramble(v.MapIndex(k), seen)
			v.SetMapIndex(k, reflect.Value{})
		}
	}
	if v.CanSet() {
		v.SetZero()
	}
}

// The detector of changes is itself tested: it must reach what it looks for.
func TestScrambleReaches(t *testing.T) {
	c := full()
	scramble(reflect.ValueOf(struct{ C *nodev1.RuntimeClass }{c}), map[uintptr]bool{})
	if c.Handler != "" || c.Scheduling != nil {
		t.Errorf("left %+v", c)
	}
	selector := full().Scheduling.NodeSelector
	scramble(reflect.ValueOf([]any{selector}), map[uintptr]bool{})
	if len(selector) > 0 {
		t.Errorf("left %v", selector)
	}
}
