package capacity

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"fairlead.run/internal/errdefs"
)

// CheckPages says which huge pages pods ask for together that the machine does not have. It
// is for who runs pods and keeps none of them waiting; the error is errdefs.ErrExhausted.
func (h Host) CheckPages(pods []*corev1.Pod) error {
	asked := corev1.ResourceList{}
	for _, p := range pods {
		for what, q := range Requests(p) {
			if !strings.HasPrefix(string(what), corev1.ResourceHugePagesPrefix) {
				continue
			}
			sum := asked[what]
			sum.Add(q)
			asked[what] = sum
		}
	}
	if len(asked) == 0 {
		return nil
	}
	has, err := h.hugepages()
	if err != nil {
		return fmt.Errorf("read how many huge pages the machine has: %w", err)
	}
	for _, what := range slices.Sorted(maps.Keys(asked)) {
		q, there := asked[what], has[string(what)]
		if q.Value() > there {
			return fmt.Errorf("the pods ask for %s of %s, and the machine has %s; have the kernel keep more, by nr_hugepages of that size below /sys/kernel/mm/hugepages, or ask for less: %w",
				q.String(), what, resource.NewQuantity(there, resource.BinarySI), errdefs.ErrExhausted)
		}
	}
	return nil
}
