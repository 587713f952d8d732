package runtimeclass

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// onePod is what each pod needs of the resource "pods".
var onePod = *resource.NewQuantity(1, resource.DecimalSI)

// lacking says which resources of a node do not suffice, by name. A node that
// tells no resources at all is not judged by them.
func (d demand) lacking(n *corev1.Node, used corev1.ResourceList) []Why {
	if len(n.Status.Allocatable) == 0 {
		return nil
	}
	var out []Why
	for _, name := range slices.Sorted(maps.Keys(d.requests)) {
		needs := d.requests[name]
		total, told := n.Status.Allocatable[name]
		if needs.Sign() <= 0 || name == corev1.ResourcePods && !told {
			continue
		}
		free := total.DeepCopy()
		free.Sub(used[name])
		if needs.Cmp(free) <= 0 {
			continue
		}
		out = append(out, Why{Cause: CauseResources, Resource: name, Detail: d.shortage(name, needs, free)})
	}
	return out
}

// shortage writes "memory: 2112Mi needed, 64Mi of it overhead, and 1Gi free".
func (d demand) shortage(name corev1.ResourceName, needs, free resource.Quantity) string {
	text := fmt.Sprintf("%s: %s needed", name, needs.String())
	if o, ok := d.overhead[name]; ok && o.Sign() > 0 {
		text += ", " + o.String() + " of it overhead,"
	}
	if free.Sign() < 0 {
		free = resource.Quantity{Format: free.Format}
	}
	return text + " and " + free.String() + " free"
}
