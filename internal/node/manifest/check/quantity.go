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
	case name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage:
		checkBytes(f, path, q)
	case isPages(name):
		checkBytes(f, path, q)
		checkPages(f, path, name, q)
	default:
		checkRange(f, path, q)
	}
}

func isPages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// checkPages wants a size of pages, and whole pages.
func checkPages(f *faults, path string, name corev1.ResourceName, q resource.Quantity) {
	text := strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix)
	size, err := resource.ParseQuantity(text)
	switch {
	case err != nil || size.Sign() <= 0:
		f.add(path, "%q is no size of pages, such as 2Mi in hugepages-2Mi", text)
	case q.Value()%size.Value() != 0:
		f.add(path, "%s is no whole number of pages of %s", q.String(), text)
	}
}

// checkHugePages checks what an API server would: nothing is given on credit of pages, so a
// request is the limit.
func checkHugePages(f *faults, at string, r corev1.ResourceRequirements) {
	asks := false
	for name, limit := range r.Limits {
		if !isPages(name) {
			continue
		}
		asks = true
		if q, ok := r.Requests[name]; ok && q.Cmp(limit) != 0 {
			f.add(fields.Below(at+".requests", string(name)), "%s is not the limit, %s: huge pages are kept for who may use them; leave it out", q.String(), limit.String())
		}
	}
	for name, q := range r.Requests {
		if _, ok := r.Limits[name]; isPages(name) && !ok {
			asks = true
			f.add(fields.Below(at+".requests", string(name)), "has no limit; write limits: {%s: %s}", name, q.String())
		}
	}
	if !asks {
		return
	}
	for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if _, ok := list[name]; ok {
				return
			}
		}
	}
	f.add(at, "huge pages need a limit or request of cpu or memory beside them, which say how important the pod is")
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
