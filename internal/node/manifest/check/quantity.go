package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"fairlead.run/internal/node/manifest/fields"
)

// mostQuantity is more than any machine has, and little enough to count with.
var mostQuantity = resource.MustParse("1E")

// Quantities checks how much of each resource is asked for.
func Quantities(at string, list corev1.ResourceList) []string {
	var f faults
	for _, name := range slices.Sorted(maps.Keys(list)) {
		checkQuantity(&f, at, name, list[name])
	}
	return f
}

// checkQuantity checks how much of a resource is asked for.
func checkQuantity(f *faults, at string, name corev1.ResourceName, q resource.Quantity) {
	path := fields.Below(at, string(name))
	switch {
	case name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage, strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		checkBytes(f, path, q)
	default:
		checkRange(f, path, q)
	}
}

func checkRange(f *faults, path string, q resource.Quantity) {
	if q.Sign() < 0 || q.Cmp(mostQuantity) > 0 {
		f.add(path, "%s is not between 0 and %s", q.String(), mostQuantity.String())
	}
}

// checkBytes also refuses parts of a byte. Nobody means them: 100m is written
// by those who mean 100M.
func checkBytes(f *faults, path string, q resource.Quantity) {
	checkRange(f, path, q)
	if q.Cmp(*resource.NewQuantity(q.Value(), q.Format)) == 0 {
		return
	}
	text, hint := q.String(), "write whole bytes, as in 100M or 100Mi"
	if n, milli := strings.CutSuffix(text, "m"); milli {
		hint = fmt.Sprintf("did you mean %sM or %sMi?", n, n)
	}
	amount := q.AsDec().String() + " bytes"
	if text == "100m" {
		amount = "a tenth of a byte"
	}
	f.add(path, "%s is %s; %s", text, amount, hint)
}

// The annotations that limit a pod's traffic, and what Kubernetes takes: bits
// per second.
var (
	bandwidthAnnotations       = []string{"kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth"}
	leastBandwidth, mostWanted = resource.MustParse("1k"), resource.MustParse("1P")
)

func checkBandwidth(f *faults, path string, pod *corev1.Pod) {
	for _, name := range bandwidthAnnotations {
		text, ok := pod.Annotations[name]
		if !ok {
			continue
		}
		at := path + ".annotations[" + name + "]"
		if fields.ParseQuantity(text) != nil {
			f.add(at, "%.40q is not a quantity such as 10M, in bits per second", text)
			continue
		}
		if q := resource.MustParse(text); q.Cmp(leastBandwidth) < 0 || q.Cmp(mostWanted) > 0 {
			f.add(at, "%q is not between 1k and 1P bits per second", text)
		}
		if pod.Spec.HostNetwork {
			f.add(at, "does not go with hostNetwork: the node's own traffic is not limited")
		}
	}
}
