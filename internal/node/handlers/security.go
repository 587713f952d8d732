package handlers

import (
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/errdefs"
)

// A kubelet's reasons for a pod that CheckSecurity refuses.
const (
	ReasonGroups   = "SupplementalGroupsPolicyNotSupported"
	ReasonAppArmor = "AppArmor"
)

// CheckSecurity says why a pod cannot have on this node what its security contexts ask for,
// with a kubelet's reason.
func (s *Set) CheckSecurity(pod *corev1.Pod) (reason string, err error) {
	if !s.strictGroups && wantsStrictGroups(pod) {
		return ReasonGroups, fmt.Errorf("SupplementalGroupsPolicy=%s is not supported in this node, as its container runtime would add groups of the image; update the runtime, or ask for %s: %w",
			corev1.SupplementalGroupsPolicyStrict, corev1.SupplementalGroupsPolicyMerge, errdefs.ErrUnimplemented)
	}
	if asks := asksForAppArmor(pod); !s.appArmor && asks != "" {
		return ReasonAppArmor, fmt.Errorf("cannot enforce AppArmor: AppArmor is not enabled on the host, and %s asks for a profile; enable it in the node's kernel, or leave appArmorProfile out: %w",
			asks, errdefs.ErrUnimplemented)
	}
	return "", nil
}

// wantsStrictGroups says that a pod wants no groups of its images: a runtime that does not
// know Strict would leave its containers those.
func wantsStrictGroups(pod *corev1.Pod) bool {
	sc := pod.Spec.SecurityContext
	return sc != nil && sc.SupplementalGroupsPolicy != nil && *sc.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict
}

// asksForAppArmor is what of a pod asks for a profile, or empty.
func asksForAppArmor(pod *corev1.Pod) string {
	asks := func(p *corev1.AppArmorProfile) bool {
		return p != nil && p.Type != corev1.AppArmorProfileTypeUnconfined
	}
	if sc := pod.Spec.SecurityContext; sc != nil && asks(sc.AppArmorProfile) {
		return "the pod"
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if sc := list[i].SecurityContext; sc != nil && asks(sc.AppArmorProfile) {
				return "container " + list[i].Name
			}
		}
	}
	return ""
}

// appArmorParameter says of the kernel whether it has AppArmor and has it enabled.
const appArmorParameter = "/sys/module/apparmor/parameters/enabled"

func appArmorEnabled() bool {
	b, err := os.ReadFile(appArmorParameter)
	return err == nil && strings.HasPrefix(string(b), "Y")
}
