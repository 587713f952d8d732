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
	nodes    []corev1.Node
	runtimes []gardener.ContainerRuntime
	pools    []v1alpha1.WorkerPool
}

func (b backwards) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	switch list := into.(type) {
	case *corev1.NodeList:
		list.Items = reversed(b.nodes)
	case *gardener.ContainerRuntimeList:
		list.Items = reversed(b.runtimes)
	case *v1alpha1.WorkerPoolList:
		list.Items = reversed(b.pools)
	}
	return nil
}

func reversed[T any](all []T) []T {
	out := slices.Clone(all)
	slices.Reverse(out)
	return out
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

// What is told of runtimes and of other pools is the same with each look, too.
func TestStatusIsInOrder(t *testing.T) {
	var c backwards
	for _, name := range []string{"a", "b", "c"} {
		one, pool := gardener.ContainerRuntime{}, v1alpha1.WorkerPool{}
		one.Name, pool.Name = name, name
		c.runtimes, c.pools = append(c.runtimes, one), append(c.pools, pool)
	}
	r := &Reconciler{Client: c}
	have, err := r.runtimes(t.Context(), c, "p")
	if err != nil || len(have) != 3 || have[0].Name != "a" || have[2].Name != "c" {
		t.Errorf("%v %v", err, have)
	}
	p := &v1alpha1.WorkerPool{}
	p.Name = "d"
	known, err := r.known(t.Context(), p)
	if err != nil || len(known.Pools) != 3 || known.Pools[0].Name != "a" || known.Pools[2].Name != "c" {
		t.Errorf("%v %v", err, known.Pools)
	}
}
