package handlers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestCheckGroups refuses a pod that wants no groups of its images where the runtime would add
// them.
func TestCheckGroups(t *testing.T) {
	strict, merge := corev1.SupplementalGroupsPolicyStrict, corev1.SupplementalGroupsPolicyMerge
	for _, tt := range []struct {
		name     string
		features *runtimeapi.RuntimeFeatures
		policy   *corev1.SupplementalGroupsPolicy
		refused  bool
	}{
		{"the runtime can", &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}, &strict, false},
		{"the runtime cannot", &runtimeapi.RuntimeFeatures{}, &strict, true},
		{"the runtime is too old to say", nil, &strict, true},
		{"Merge", nil, &merge, false},
		{"nothing said", nil, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := List(t.Context(), endpoint{answer: &runtimeapi.StatusResponse{Features: tt.features}})
			if err != nil {
				t.Fatal(err)
			}
			p := &corev1.Pod{}
			p.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: tt.policy}
			if err := s.CheckGroups(p); (err != nil) != tt.refused {
				t.Errorf("%v", err)
			}
		})
	}
}
