package agent

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/admission"
	"fairlead.run/internal/node/pulse"
)

// slowRoom holds up whoever asks for room, as a bug would.
type slowRoom struct {
	few
	until chan struct{}
}

func (r *slowRoom) Admit(p *corev1.Pod, running, leaving []*corev1.Pod) (admission.Displaced, error) {
	<-r.until
	return r.few.Admit(p, running, leaving)
}

// TestHealthy is well for as long as nothing happens, and not when the agent is held up.
func TestHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		room := &slowRoom{few: few{most: 9, cpu: "1"}, until: make(chan struct{})}
		n.room = room
		n.boot(t)
		for range 20 {
			time.Sleep(time.Minute)
			if err := n.Healthy(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		n.Set([]*corev1.Pod{pod(1, corev1.RestartPolicyAlways, "x")})
		time.Sleep(pulse.StuckAfter + pulse.Every)
		if err := n.Healthy(t.Context()); err == nil {
			t.Error("it is held up, and well")
		}
		close(room.until)
		synctest.Wait()
		if err := n.Healthy(t.Context()); err != nil {
			t.Error(err)
		}
		n.stop()
	})
}
