package capacity

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// PIDs is how the settings of reservations call processes. It is no resource of a
// node's status.
const PIDs corev1.ResourceName = "pid"

// DefaultPods is how many pods a node takes.
const DefaultPods = 110

// Settings are what is kept back.
type Settings struct {
	MaxPods        int                 // 0 for DefaultPods
	PodsPerCPU     int                 // 0 for no limit
	SystemReserved corev1.ResourceList // for the host's services
	KubeReserved   corev1.ResourceList // for the agent and the runtime
	// Evicted is where eviction begins at once: memory, ephemeral-storage and pid.
	Evicted corev1.ResourceList
}

// Node is what pods may have.
type Node struct {
	Capacity    corev1.ResourceList
	Allocatable corev1.ResourceList
	// Together is what all pods are held to: unlike Allocatable with what is kept
	// for eviction, which is to happen before that.
	Together Together
}

// Together are the limits of the cgroup of all pods.
type Together struct {
	MilliCPU int64
	Memory   int64 // bytes
	Pids     int64
}

// reservable are the resources that can be kept back.
var reservable = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, PIDs}

// ParseReserved reads what a flag or a file says of a reservation.
func ParseReserved(settings map[string]string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	var errs []error
	for _, what := range slices.Sorted(maps.Keys(settings)) {
		q, err := resource.ParseQuantity(settings[what])
		switch {
		case !slices.Contains(reservable, corev1.ResourceName(what)):
			errs = append(errs, fmt.Errorf("%q cannot be reserved; use %s", what, names(reservable)))
		case err != nil:
			errs = append(errs, fmt.Errorf("reserved %s: %q is no quantity; write it as 500m or 1Gi", what, settings[what]))
		case q.Sign() < 0:
			errs = append(errs, fmt.Errorf("reserved %s: %s is less than nothing", what, settings[what]))
		default:
			out[corev1.ResourceName(what)] = q
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

func names(list []corev1.ResourceName) string {
	var out []string
	for _, n := range list {
		out = append(out, string(n))
	}
	return strings.Join(out, ", ")
}

// Of is what pods may have of the machine. What is kept back of more than there is
// is refused.
func (s Settings) Of(m Machine) (Node, error) {
	has := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewMilliQuantity(int64(m.CPUs)*1000, resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(m.Memory, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(m.Disk, resource.BinarySI),
		PIDs:                            *resource.NewQuantity(m.Pids, resource.DecimalSI),
	}
	left, together := corev1.ResourceList{}, corev1.ResourceList{}
	var errs []error
	for _, what := range reservable {
		reserved := s.SystemReserved[what]
		reserved.Add(s.KubeReserved[what])
		together[what] = minus(has[what], reserved)
		all := reserved.DeepCopy()
		all.Add(s.Evicted[what])
		left[what] = minus(has[what], all)
		if q := has[what]; all.Cmp(q) > 0 {
			errs = append(errs, fmt.Errorf("%s of %s is kept back for the system and for eviction, and the node has %s; reserve less", all.String(), what, q.String()))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Node{}, err
	}
	pods := *resource.NewQuantity(s.pods(m.CPUs), resource.DecimalSI)
	out := Node{Capacity: has, Allocatable: left, Together: Together{
		MilliCPU: quantity(together, corev1.ResourceCPU).MilliValue(),
		Memory:   quantity(together, corev1.ResourceMemory).Value(),
		Pids:     quantity(together, PIDs).Value(),
	}}
	for size, n := range m.Hugepages {
		q := *resource.NewQuantity(n, resource.BinarySI)
		has[corev1.ResourceName(size)], left[corev1.ResourceName(size)] = q, q
		// Nobody can use it as other memory.
		left[corev1.ResourceMemory] = minus(left[corev1.ResourceMemory], q)
	}
	has[corev1.ResourcePods], left[corev1.ResourcePods] = pods, pods
	delete(has, PIDs)
	delete(left, PIDs)
	return out, nil
}

func (s Settings) pods(cpus int) int64 {
	most := s.MaxPods
	if most == 0 {
		most = DefaultPods
	}
	if s.PodsPerCPU > 0 {
		most = min(most, s.PodsPerCPU*cpus)
	}
	return int64(most)
}

func quantity(l corev1.ResourceList, what corev1.ResourceName) *resource.Quantity {
	q := l[what]
	return &q
}

// minus is never less than nothing.
func minus(a, b resource.Quantity) resource.Quantity {
	out := a.DeepCopy()
	out.Sub(b)
	if out.Sign() < 0 {
		out.Set(0)
	}
	return out
}
