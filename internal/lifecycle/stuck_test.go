package lifecycle

import (
	"context"
	"errors"
	"testing"
	"time"

	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
)

// A pod whose observation hangs delays neither the others nor the release of
// what the past has left.
func TestAPodThatHangsDelaysNoRecovery(t *testing.T) {
	h, d := newHost(), newDisk()
	c, kill := boot(t, h, d)
	stuck, _ := started(t, c, "stuck")
	fine, ctr := started(t, c, "fine")
	kill()
	h.set(func() { h.things["net of-nobody"] = true; h.things["root of-nobody"] = true })
	release := hold(h, "sandbox.observe stuck")
	c, _ = boot(t, h, d)
	if err := c.StopContainer(ctx, ctr, time.Second); err != nil {
		t.Fatal(err)
	}
	if err := c.RemovePod(ctx, fine); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the release of what nobody has", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return !h.things["net of-nobody"] && !h.things["root of-nobody"]
	})
	if op := only(t, c, ops.Recover); op.Name != "default/stuck" {
		t.Errorf("listed as %+v", op)
	}
	hasty, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := c.StopPod(hasty, stuck); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a request for the pod that hangs: %v", err)
	}
	release()
	eventually(t, "the stop that goes on", func() bool {
		r, err := c.FindPod(string(stuck))
		return err == nil && r.State == pod.Exited
	})
}
