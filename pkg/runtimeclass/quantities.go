package runtimeclass

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// quotaPrefix is what a ResourceQuota puts before the name of a resource. A name
// that others choose must leave room for it, and not have it already.
const quotaPrefix = "requests."

// validateOverhead checks the overhead of a class, which obeys the rules of a
// container's limits.
func validateOverhead(list corev1.ResourceList, at *field.Path) field.ErrorList {
	var faults field.ErrorList
	pages, main := false, false
	for _, name := range slices.Sorted(maps.Keys(list)) {
		path := at.Child("podFixed").Key(string(name))
		faults = append(faults, validateResourceName(name, path)...)
		faults = append(faults, validateQuantity(name, list[name], path)...)
		pages = pages || isHugePages(name)
		main = main || name == corev1.ResourceCPU || name == corev1.ResourceMemory
	}
	if pages && !main {
		faults = append(faults, field.Forbidden(at, "huge pages do not go without cpu or memory"))
	}
	return faults
}

func validateResourceName(name corev1.ResourceName, at *field.Path) field.ErrorList {
	if problems := validation.IsQualifiedName(string(name)); len(problems) > 0 {
		return invalid(at, string(name), problems)
	}
	switch {
	case !strings.Contains(string(name), "/"):
		if !isHugePages(name) && name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourceEphemeralStorage {
			return invalid(at, string(name), []string{"is not a resource of containers: cpu, memory, ephemeral-storage, hugepages-SIZE, or the name of a vendor's with its domain"})
		}
	case !isKubernetes(name) && !isExtended(name):
		return invalid(at, string(name), []string{"a vendor's resource does not start with " + quotaPrefix + ", and its domain has at most 244 characters"})
	}
	return nil
}

func validateQuantity(name corev1.ResourceName, q resource.Quantity, at *field.Path) field.ErrorList {
	var faults field.ErrorList
	if q.Sign() < 0 {
		faults = append(faults, field.Invalid(at, q.String(), "is negative"))
	}
	if isExtended(name) && q.MilliValue()%1000 != 0 {
		faults = append(faults, field.Invalid(at, q.String(), "is not a whole number, as the count of a vendor's resource is"))
	}
	if isHugePages(name) && !wholePages(name, q) {
		faults = append(faults, field.Invalid(at, q.String(), "is not a multiple of the size of a page"))
	}
	return faults
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// isKubernetes is true for names in a domain of Kubernetes.
func isKubernetes(name corev1.ResourceName) bool {
	return strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// isExtended is true for the resources of vendors: "nvidia.com/gpu".
func isExtended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !isKubernetes(name) &&
		!strings.HasPrefix(string(name), quotaPrefix) && len(validation.IsQualifiedName(quotaPrefix+string(name))) == 0
}

func wholePages(name corev1.ResourceName, q resource.Quantity) bool {
	size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	if err != nil || size.Value() <= 0 || size.MilliValue()%1000 != 0 {
		return false
	}
	return q.Value()%size.Value() == 0
}
