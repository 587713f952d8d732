package policy_test

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/pkg/runtimeclass"
	"fairlead.run/pkg/runtimeclass/policy"
)

// What is handed in may be a cache's own, and used by many at once.
func TestNothingIsChanged(t *testing.T) {
	made := func() (policy.Admission, *corev1.Pod, *corev1.Namespace) {
		a := cluster(t, demand("all", v1alpha1.RuntimeClassPolicySpec{DefaultClass: "gvisor", AllowedClasses: []string{"kata", "gvisor", "fire"}, RequiredFeatures: []v1alpha1.Feature{"checkpoint"}}))
		return a, pod(requiring("isolation=vm"), with(hostNetwork)), namespace("team", "trust", "low")
	}
	a, p, ns := made()
	b, q, ns2 := made()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			_, _ = a.Create(p, ns)
			_, _ = a.Check(p, ns)
			_ = a.Update(p, p)
			policy.DefaultOf([]*nodev1.RuntimeClass{a.Classes.Get("kata")})
		})
	}
	all.Wait()
	if !reflect.DeepEqual(a.Classes, b.Classes) || !reflect.DeepEqual(p, q) || !reflect.DeepEqual(ns, ns2) || !reflect.DeepEqual(a.Policies, b.Policies) {
		t.Error("something that was handed in has changed")
	}
}

// FuzzRequires reads what authors write: never a panic, and what is read can be
// written and read again.
func FuzzRequires(f *testing.F) {
	for _, seed := range []string{"isolation=vm,userNamespaces,checkpoint", "", ",", "isolation=", "a,a,A", "isolation=vm,isolation=vm", strings.Repeat("x,", 300), "é"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a := policy.Admission{Classes: runtimeclass.NewMap(class("vm", isolating("vm"), saying(policy.AnnotationSupports, text)))}
		d, err := a.Create(pod(requiring(text)), nil)
		_, again := a.Create(pod(requiring(text)), nil)
		if (err == nil) != (again == nil) || err != nil && err.Error() != again.Error() {
			t.Fatalf("two answers: %v, and %v", err, again)
		}
		if err == nil && runtimeclass.NameOf(d.Pod) != "vm" {
			t.Fatalf("admitted without a class: %+v", d.Pod.Spec)
		}
	})
}

// BenchmarkAdmission is what one request costs besides HTTP and JSON, in a
// cluster with 5,000 classes and 500 policies of which 5 apply.
func BenchmarkAdmission(b *testing.B) {
	classes := runtimeclass.Map{}
	for i := range 5000 {
		c := class(fmt.Sprintf("class-%d", i), isolating([]string{"none", "sandbox", "vm"}[i%3]), handledBy(fmt.Sprintf("handler-%d", i%20)))
		classes[c.Name] = c
	}
	var policies []*policy.Policy
	for i := range 500 {
		p := demand(fmt.Sprintf("policy-%d", i), v1alpha1.RuntimeClassPolicySpec{MinimumIsolation: "sandbox"})
		p.Spec.NamespaceSelector.MatchLabels = map[string]string{"team": fmt.Sprint(i % 100)}
		c, err := policy.Compile(p)
		if err != nil {
			b.Fatal(err)
		}
		policies = append(policies, c)
	}
	var nodes []*corev1.Node
	for i := range 1000 {
		nodes = append(nodes, node(fmt.Sprintf("node-%d", i), withUserNamespaces(fmt.Sprintf("handler-%d", i%20), true)))
	}
	a := policy.Admission{Classes: classes, Policies: policy.NewSet(policies...), Fleet: policy.NewFleet(nodes)}
	ns := namespace("team", "team", "7")
	for name, p := range map[string]*corev1.Pod{"named": pod(of("class-1")), "fitted": pod(requiring("isolation=vm,userNamespaces"))} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				d, err := a.Create(p, ns)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := a.Check(d.Pod, ns); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
