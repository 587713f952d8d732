package agent

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestDeadlineUnprepared has a pod fail that has used up its activeDeadlineSeconds, also
// while it cannot be prepared, as for a volume whose object nobody has made.
func TestDeadlineUnprepared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p, limit := pod(1, corev1.RestartPolicyNever, "x"), int64(60)
		p.Spec.ActiveDeadlineSeconds = &limit
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "nobodys"}}}}}
		n.boot(t, p)
		time.Sleep(50 * time.Second)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodPending, false)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodFailed, false)
		if s := n.of("p1"); s.Reason != "DeadlineExceeded" {
			t.Errorf("%s: %s", s.Reason, s.Message)
		}
		n.stop()
	})
}
