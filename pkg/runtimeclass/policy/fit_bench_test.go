package policy_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"fairlead.run/pkg/runtimeclass"
	"fairlead.run/pkg/runtimeclass/policy"
)

// BenchmarkFit chooses among 5,000 classes on 200 nodes, as a webhook does for a
// pod that says what it needs.
func BenchmarkFit(b *testing.B) {
	var classes []*nodev1.RuntimeClass
	for i := range 5000 {
		c := class(fmt.Sprintf("class-%04d", i), isolating([]string{"none", "sandbox", "vm"}[i%3]), costing(fmt.Sprintf("%dMi", i%100)))
		c.Handler = "runsc"
		c.Scheduling = &nodev1.Scheduling{NodeSelector: map[string]string{"sandbox/kind": fmt.Sprint(i % 10)}}
		classes = append(classes, c)
	}
	var nodes []*corev1.Node
	for i := range 200 {
		n := node(fmt.Sprint("node-", i), withUserNamespaces("runsc", true))
		n.Labels = map[string]string{"sandbox/kind": fmt.Sprint(i % 10)}
		nodes = append(nodes, n)
	}
	for name, requires := range map[string]string{"fits": "isolation=sandbox,userNamespaces", "none": "isolation=vm,teleportation"} {
		b.Run(name, func(b *testing.B) {
			a := policy.Admission{Classes: policy.NewCatalog(runtimeclass.NewMap(classes...)), Fleet: policy.NewFleet(nodes)}
			p := pod(requiring(requires))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := a.Create(p, namespace("team")); (err == nil) != (name == "fits") {
					b.Fatal(err)
				}
			}
		})
	}
}
