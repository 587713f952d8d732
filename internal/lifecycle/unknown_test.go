package lifecycle

import (
	"errors"
	"fmt"
	"testing"

	"fairlead.run/internal/errdefs"
)

// A driver that does not find what it needs has failed. Taken for "that pod is
// gone", it would leave a container running that nobody knows any more.
func TestWhatADriverDoesNotFindIsNoSuccess(t *testing.T) {
	for _, step := range []string{
		"serving", "net.detach", "sandbox.stop", "delete", "forget",
		"root.unmount", "root.remove", "bundle.remove", "image.release", "sandbox.remove",
	} {
		t.Run(step, func(t *testing.T) {
			h := newHost()
			c, _ := boot(t, h, newDisk())
			id, ctr := started(t, c, "web")
			missing := fmt.Errorf("there is no program runc: %w", errdefs.ErrNotFound)
			h.set(func() { h.fail[step] = missing })
			if err := c.RemovePod(ctx, id); err == nil || errors.Is(err, errdefs.ErrNotFound) || !errors.Is(err, errdefs.ErrInternal) {
				t.Errorf("RemovePod: error %v, want one that does not say not found", err)
			}
			if _, err := c.FindPod(string(id)); err != nil {
				t.Errorf("the pod is forgotten: %v", err)
			}
			if step == "serving" {
				if err := c.StopContainer(ctx, ctr, 0); err == nil || errors.Is(err, errdefs.ErrNotFound) {
					t.Errorf("StopContainer: error %v, want one that does not say not found", err)
				}
			}
			h.set(func() { delete(h.fail, step) })
			if err := c.RemovePod(ctx, id); err != nil {
				t.Fatalf("RemovePod again: %v", err)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if len(h.things) > 0 {
				t.Errorf("left: %v", h.things)
			}
		})
	}
}
