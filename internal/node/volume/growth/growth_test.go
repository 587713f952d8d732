package growth

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func of(size string) corev1.ResourceList {
	if size == "" {
		return nil
	}
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

func claim(has, allocated string, at corev1.ClaimResourceStatus, modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolumeClaim {
	pvc := &corev1.PersistentVolumeClaim{}
	pvc.Status.Capacity, pvc.Status.AllocatedResources, pvc.Spec.AccessModes = of(has), of(allocated), modes
	if at != "" {
		pvc.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: at}
	}
	return pvc
}

func TestNext(t *testing.T) {
	unneeded := claim("2Gi", "2Gi", "", corev1.ReadWriteMany)
	unneeded.Annotations = map[string]string{annotationNoGrowth: ""}
	for _, tt := range []struct {
		name   string
		is     string // on this node
		pvc    *corev1.PersistentVolumeClaim
		volume string
		want   string // the size, and what else there is to say
	}{
		{"not bound yet", "", claim("", "", ""), "2Gi", ""},
		{"of a controller that says nothing", "", claim("1Gi", "", ""), "2Gi", "2Gi"},
		{"as large already", "", claim("2Gi", "", ""), "2Gi", ""},
		{"the controller is at it", "", claim("1Gi", "2Gi", corev1.PersistentVolumeClaimControllerResizeInProgress), "2Gi", ""},
		{"the controller was at it", "", claim("1Gi", "2Gi", ""), "2Gi", ""},
		{"the node's turn", "", claim("1Gi", "2Gi", corev1.PersistentVolumeClaimNodeResizePending), "3Gi", "2Gi tracked"},
		{"begun before", "", claim("1Gi", "2Gi", corev1.PersistentVolumeClaimNodeResizeInProgress), "2Gi", "2Gi tracked"},
		{"given up", "", claim("1Gi", "2Gi", corev1.PersistentVolumeClaimNodeResizeInfeasible), "2Gi", ""},
		{"another node has done it", "1Gi", claim("2Gi", "2Gi", "", corev1.ReadWriteMany), "2Gi", "2Gi elsewhere"},
		{"another node had it", "1Gi", claim("2Gi", "2Gi", "", corev1.ReadWriteOnce), "2Gi", ""},
		{"nodes have nothing to do", "1Gi", unneeded, "2Gi", ""},
		{"mounted since", "", claim("2Gi", "2Gi", "", corev1.ReadWriteMany), "2Gi", ""},
	} {
		s := Size{}
		if tt.is != "" {
			s.Is = resource.MustParse(tt.is)
		}
		pv := &corev1.PersistentVolume{}
		pv.Spec.Capacity = of(tt.volume)
		got := ""
		if step := s.Next(tt.pvc, pv); step != nil {
			got = step.Size.String()
			if step.Tracked {
				got += " tracked"
			}
			if step.Elsewhere {
				got += " elsewhere"
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestRefuse(t *testing.T) {
	pvc := claim("1Gi", "2Gi", corev1.PersistentVolumeClaimNodeResizePending)
	pvc.Spec.Resources.Requests = of("2Gi")
	tracked := Step{Size: resource.MustParse("2Gi"), Tracked: true}
	wrap := func(code codes.Code) error {
		return fmt.Errorf("CSI driver d: %w", errors.Join(status.Error(code, "no"), errors.New("of a kind")))
	}
	for _, tt := range []struct {
		step Step
		err  error
		want Refusal
	}{
		{tracked, wrap(codes.Unavailable), Refusal{}},
		{tracked, errors.New("it is not mounted"), Refusal{}},
		{tracked, wrap(codes.Internal), Refusal{Last: true}},
		{tracked, wrap(codes.OutOfRange), Refusal{Last: true, Never: true}},
		{Step{Size: tracked.Size}, wrap(codes.OutOfRange), Refusal{}},
	} {
		if got := (&Size{}).Refuse(tt.step, pvc, tt.err); got != tt.want {
			t.Errorf("%v: %+v, want %+v", tt.err, got, tt.want)
		}
	}
	// Who asks for another size after a refusal is not to wait for this one.
	s := Size{}
	s.Refuse(tracked, pvc, wrap(codes.Internal))
	pvc.Spec.Resources.Requests = of("1500Mi")
	if got := s.Refuse(tracked, pvc, wrap(codes.Internal)); !got.Never {
		t.Errorf("%+v", got)
	}
	// A driver that does it only for what is not mounted is not asked again.
	pv := &corev1.PersistentVolume{}
	pv.Spec.Capacity = of("2Gi")
	s = Size{}
	if got := s.Refuse(tracked, pvc, wrap(codes.FailedPrecondition)); !got.Last || got.Never {
		t.Errorf("%+v", got)
	}
	if step := s.Next(pvc, pv); step != nil {
		t.Errorf("asked again: %+v", step)
	}
}
