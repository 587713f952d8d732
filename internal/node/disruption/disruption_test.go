package disruption

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestMark(t *testing.T) {
	for _, tt := range []struct {
		cause Cause
		want  string
	}{
		{Cause{Reason: "Evicted", Message: "low"}, "low"},
		{Cause{Reason: "Evicted", Message: "low", Target: "for others"}, "for others"},
	} {
		s := corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.DisruptionTarget, Message: "earlier"}, {Type: corev1.PodReady}}}
		tt.cause.Mark(&s, time.Unix(5, 0))
		if s.Phase != corev1.PodFailed || s.Reason != "Evicted" || s.Message != "low" || len(s.Conditions) != 2 {
			t.Fatalf("marked %+v", s)
		}
		c := s.Conditions[1]
		if c.Type != corev1.DisruptionTarget || c.Status != corev1.ConditionTrue || c.Reason != "TerminationByKubelet" || c.Message != tt.want || c.LastTransitionTime.Unix() != 5 {
			t.Errorf("condition %+v", c)
		}
	}
}

func TestRefuse(t *testing.T) {
	var s corev1.PodStatus
	Refuse(&s, "OutOfcpu", "no more")
	if s.Phase != corev1.PodFailed || s.Reason != "OutOfcpu" || s.Message != "Pod was rejected: no more" || len(s.Conditions) > 0 {
		t.Errorf("%+v", s)
	}
}
