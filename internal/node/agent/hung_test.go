package agent

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestHungStop gives up a runtime that hangs while something is stopped or removed, tells
// of it, and goes on trying: for a pod that is taken away, and for one that an earlier
// agent has left.
func TestHungStop(t *testing.T) {
	for _, tt := range []struct {
		name, call string
		left       bool
	}{
		{"stop", "stop p1/x in 0s", false},
		{"sandbox", "stop sandbox p1", false},
		{"kill of what is left", "stop p1/x in 0s", true},
		{"sandbox of what is left", "stop sandbox p1", true},
		{"removal of what is left", "remove sandbox p1", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				p := pod(1, corev1.RestartPolicyAlways, "x")
				p.Spec.TerminationGracePeriodSeconds = new(int64(0))
				n.boot(t, p)
				until := make(chan struct{})
				n.Hang(tt.call, until)
				if tt.left {
					n.kill()
					n.boot(t)
				} else {
					n.Set(nil)
				}
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				// What could not be stopped and is gone nevertheless needs no complaint.
				if len(n.Sandboxes()) > 0 && !n.saw("p1 FailedSync: ") {
					t.Errorf("nobody is told: %q", n.events)
				}
				if len(n.Calls(tt.call)) == 0 {
					t.Errorf("%q", n.Calls(""))
				}
				close(until)
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(n.Sandboxes()) > 0 || len(n.gone) != 1 {
					t.Errorf("left %v, gone %q", n.Sandboxes(), n.gone)
				}
				n.stop()
			})
		})
	}
}
