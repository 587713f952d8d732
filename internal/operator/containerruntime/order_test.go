package containerruntime

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/names"
)

// backwards is a cache, which lists nodes in any order; here from the last.
type backwards struct{ client.Client }

func (backwards) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	if list, ok := into.(*corev1.NodeList); ok {
		for _, name := range []string{"c", "b", "a"} {
			list.Items = append(list.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
	}
	return nil
}

// Of many nodes a message names the first: it must be the same with each look.
func TestNodesAreInOrder(t *testing.T) {
	e := &onNodes{client: backwards{}}
	c := &gardener.ContainerRuntime{}
	c.Spec.WorkerPool.Selector.MatchLabels = map[string]string{"a": "b"}
	pool := &v1alpha1.WorkerPool{}
	pool.Spec.NodeSelector = map[string]string{"a": "b"}
	members, err := e.members(t.Context(), c)
	unclaimed, failed := e.unclaimed(t.Context(), &task{pool: pool})
	phase, late := inPhase(t.Context(), e.client, c, "gvisor", names.Install)
	if err != nil || failed != nil || late != nil {
		t.Fatal(err, failed, late)
	}
	for what, all := range map[string][]corev1.Node{"members": members, "unclaimed": unclaimed, "in a phase": phase} {
		if !slices.EqualFunc(all, []string{"a", "b", "c"}, func(n corev1.Node, name string) bool { return n.Name == name }) {
			t.Errorf("%s are in another order", what)
		}
	}
}
