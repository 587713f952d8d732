package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestProbeRestarts restarts a container that a probe has ended also where it ended with 0, as
// a server does that heeds SIGTERM: that is no end of its work. One that ends so by itself has
// done it.
func TestProbeRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p, sick := pod(1, corev1.RestartPolicyOnFailure, "x"), int32(1)
		p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"ok"}}}}
		n.OnExec(func(context.Context, string, []string) (int32, error) { return sick, nil })
		n.Stubborn()
		n.boot(t, p)
		time.Sleep(25 * time.Second)
		synctest.Wait()
		sick = 0
		n.Exit("p1/x", 0)
		time.Sleep(time.Minute)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		n.Exit("p1/x", 0)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodSucceeded, false)
		n.stop()
	})
}
