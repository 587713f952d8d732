// Package disruption writes into the status of a pod that its node has ended it,
// or has not taken it: preempted, evicted, shut down, refused. Which pods these
// are others decide.
package disruption

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cause is why a node has ended a pod.
type Cause struct {
	Reason, Message string
	// Target is the message of the condition DisruptionTarget; empty for Message.
	Target string
}

// Mark writes it down. Whoever manages the pod then knows that it is no fault of
// the pod's.
func (c Cause) Mark(s *corev1.PodStatus, now time.Time) {
	s.Phase, s.Reason, s.Message = corev1.PodFailed, c.Reason, c.Message
	text := c.Target
	if text == "" {
		text = c.Message
	}
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
	s.Conditions = append(s.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		Reason: corev1.PodReasonTerminationByKubelet, Message: text, LastTransitionTime: metav1.NewTime(now),
	})
}

// Refuse writes down that a node has not taken the pod at all.
func Refuse(s *corev1.PodStatus, reason, message string) {
	s.Phase, s.Reason, s.Message = corev1.PodFailed, reason, "Pod was rejected: "+message
}
