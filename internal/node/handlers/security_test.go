package handlers

import (
	"errors"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
)

// TestStrictGroups refuses a pod that wants no groups of its images where the runtime would
// add them.
func TestStrictGroups(t *testing.T) {
	strict, merge := corev1.SupplementalGroupsPolicyStrict, corev1.SupplementalGroupsPolicyMerge
	for _, tt := range []struct {
		name     string
		features *runtimeapi.RuntimeFeatures
		policy   *corev1.SupplementalGroupsPolicy
		reason   string
	}{
		{"the runtime can", &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}, &strict, ""},
		{"the runtime cannot", &runtimeapi.RuntimeFeatures{}, &strict, ReasonGroups},
		{"the runtime is too old to say", nil, &strict, ReasonGroups},
		{"Merge", nil, &merge, ""},
		{"nothing said", nil, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := List(t.Context(), endpoint{answer: &runtimeapi.StatusResponse{Features: tt.features}})
			if err != nil {
				t.Fatal(err)
			}
			p := &corev1.Pod{}
			p.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: tt.policy}
			if reason, err := s.CheckSecurity(p); reason != tt.reason || (err != nil) != (tt.reason != "") {
				t.Errorf("%q, %v", reason, err)
			}
		})
	}
}

// TestAppArmor refuses a pod that asks for a profile where the kernel has none, whatever
// the handler, and no other.
func TestAppArmor(t *testing.T) {
	profile := func(kind corev1.AppArmorProfileType) *corev1.AppArmorProfile {
		return &corev1.AppArmorProfile{Type: kind}
	}
	local, byDefault, off := profile(corev1.AppArmorProfileTypeLocalhost), profile(corev1.AppArmorProfileTypeRuntimeDefault), profile(corev1.AppArmorProfileTypeUnconfined)
	for _, tt := range []struct {
		name                 string
		pod, init, container *corev1.AppArmorProfile
		asks                 string
	}{
		{"nothing said", nil, nil, nil, ""},
		{"unconfined", off, off, off, ""},
		{"by the pod", byDefault, nil, off, "the pod asks"},
		{"by a container", off, nil, local, "container main asks"},
		{"by an init container", nil, byDefault, nil, "container setup asks"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &corev1.Pod{}
			p.Spec.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: tt.pod}
			p.Spec.InitContainers = []corev1.Container{{Name: "setup", SecurityContext: &corev1.SecurityContext{AppArmorProfile: tt.init}}}
			p.Spec.Containers = []corev1.Container{{Name: "plain"}, {Name: "main", SecurityContext: &corev1.SecurityContext{AppArmorProfile: tt.container}}}
			if reason, err := (&Set{appArmor: true}).CheckSecurity(p); reason != "" || err != nil {
				t.Errorf("where the kernel has it: %q, %v", reason, err)
			}
			reason, err := (&Set{}).CheckSecurity(p)
			if tt.asks == "" {
				if reason != "" || err != nil {
					t.Errorf("%q, %v", reason, err)
				}
				return
			}
			if reason != ReasonAppArmor || !errors.Is(err, errdefs.ErrUnimplemented) || !strings.Contains(err.Error(), "cannot enforce AppArmor") || !strings.Contains(err.Error(), tt.asks) {
				t.Errorf("%q, %v; want that %s", reason, err, tt.asks)
			}
		})
	}
}

// TestAppArmorOfTheKernel has a set know what this kernel says.
func TestAppArmorOfTheKernel(t *testing.T) {
	s, err := List(t.Context(), endpoint{answer: &runtimeapi.StatusResponse{}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat("/sys/kernel/security/apparmor/profiles")
	if _, off := os.Stat(appArmorParameter); off == nil && err == nil && !s.appArmor || off != nil && s.appArmor {
		t.Errorf("AppArmor %v; the kernel's parameter: %v, and its profiles: %v", s.appArmor, off, err)
	}
}
