package workerpool

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
)

// backwards is a cache, which lists objects in any order; here from the last.
type backwards struct {
	client.Client
	nodes []corev1.Node
}

func (b backwards) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	list, ok := into.(*corev1.NodeList)
	if !ok {
		return fmt.Errorf("there are no %T", into)
	}
	list.Items = slices.Clone(b.nodes)
	slices.Reverse(list.Items)
	return nil
}

// Of many nodes that others have, the first by name are told, however a cache lists them:
// the status would be another one with each look.
func TestContestedAreTheFirstByName(t *testing.T) {
	var c backwards
	for i := range mostContested + 5 {
		n := corev1.Node{}
		n.Name, n.Labels = fmt.Sprintf("n-%02d", i), map[string]string{"group": "a", gardener.LabelPool: "other"}
		c.nodes = append(c.nodes, n)
	}
	p := &v1alpha1.WorkerPool{}
	p.Name, p.Spec.NodeSelector = "a", map[string]string{"group": "a"}
	if _, err := (&Reconciler{Client: c}).count(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if got := p.Status.Contested; len(got) != mostContested || got[0] != "n-00" || got[mostContested-1] != "n-09" {
		t.Errorf("%q", got)
	}
}
