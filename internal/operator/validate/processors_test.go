package validate

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/internal/operator/plugin"
)

// labelled is a node that the pools of these tests choose, with more labels, as KEY=VALUE.
func labelled(name string, more ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "sandboxed", corev1.LabelArchStable: "amd64"}}}
	for _, one := range more {
		key, value, _ := strings.Cut(one, "=")
		n.Labels[key] = value
	}
	return n
}

func TestProcessors(t *testing.T) {
	const found = "feature.node.kubernetes.io/cpu-cpuid."
	for name, c := range map[string]struct {
		nodes []*corev1.Node
		says  plugin.Answer
		by    string
	}{
		"no nodes":                  {},
		"nobody has looked":         {nodes: []*corev1.Node{labelled("a"), labelled("b", "feature.node.kubernetes.io/kernel-version.major=6")}},
		"of Intel's":                {nodes: []*corev1.Node{labelled("a", found+"AVX=true", found+"VMX=true")}, says: plugin.Yes},
		"of AMD's":                  {nodes: []*corev1.Node{labelled("a", found+"SVM=true")}, says: plugin.Yes},
		"one of them":               {nodes: []*corev1.Node{labelled("a", found+"AVX=true"), labelled("b", found+"VMX=true")}, says: plugin.Yes},
		"none of them":              {nodes: []*corev1.Node{labelled("b", found+"AVX=true"), labelled("a", found+"AVX=true"), labelled("c")}, by: "has found neither VMX nor SVM on a, b; turn nested"},
		"many":                      {nodes: many(7, found+"AVX=true"), by: "on n0, n1, n2, n3, n4, and 2 more; turn nested"},
		"one that says no":          {nodes: []*corev1.Node{labelled("a", found+"VMX=false")}, by: "neither VMX nor SVM on a"},
		"another flag of the name":  {nodes: []*corev1.Node{labelled("a", found+"SVMNP=true")}, by: "neither VMX nor SVM on a"},
		"of Arm":                    {nodes: []*corev1.Node{labelled("a", found+"AES=true", corev1.LabelArchStable+"=arm64")}},
		"that does not tell yet":    {nodes: []*corev1.Node{labelled("a", found+"AES=true", corev1.LabelArchStable+"=")}},
		"another pool's":            {nodes: []*corev1.Node{labelled("a", found+"VMX=true", gardener.LabelPool+"=other")}},
		"its own, no longer chosen": {nodes: []*corev1.Node{labelled("a", found+"VMX=true", gardener.LabelPool+"=a", "pool=else")}, says: plugin.Yes},
		"that it does not choose":   {nodes: []*corev1.Node{labelled("a", found+"VMX=true", "pool=else")}},
	} {
		t.Run(name, func(t *testing.T) {
			p := poolOf("kata")
			p.Name = "a"
			var s Processors
			for _, n := range c.nodes {
				s.Look(p, n)
			}
			if got := s.Virtual(); got.Says != c.says || (got.By == "") != (c.by == "") || !strings.Contains(got.By, c.by) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func many(n int, label string) (out []*corev1.Node) {
	for i := range n {
		out = append(out, labelled(fmt.Sprintf("n%d", i), label))
	}
	return out
}
