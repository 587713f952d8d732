package lifecycle

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// TestNetworksAreCheckedAfterARestart breaks the networks of two of four pods while
// no daemon is there. All serve at once; what is wrong is noted until it is in order.
func TestNetworksAreCheckedAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHost(), newDisk()
		c, kill := boot(t, h, d)
		ids := map[string]pod.ID{}
		for _, name := range []string{"fine", "broken", "unclear", "stopped"} {
			ids[name], _ = started(t, c, name)
		}
		if err := c.StopPod(ctx, ids["stopped"]); err != nil {
			t.Fatal(err)
		}
		kill()
		h.set(func() {
			h.fail["net.check broken"] = fmt.Errorf("it has no eth0: %w", errdefs.ErrPrecondition)
			h.fail["net.check unclear"] = fmt.Errorf("the plugin is away: %w", errdefs.ErrUnavailable)
			h.fail["net.check stopped"] = fmt.Errorf("nobody asks: %w", errdefs.ErrPrecondition)
		})
		c, _ = boot(t, h, d)
		want := func(at string, faults map[string]string) {
			t.Helper()
			synctest.Wait()
			for name, id := range ids {
				r, err := c.FindPod(string(id))
				if err != nil {
					t.Fatal(err)
				}
				state := pod.Running
				if name == "stopped" {
					state = pod.Exited
				}
				if r.State != state || r.NetworkFault != faults[name] {
					t.Errorf("%s: pod %s is %s, with %q wrong, want %s and %q", at, name, r.State, r.NetworkFault, state, faults[name])
				}
			}
		}
		synctest.Wait()
		<-c.Looked()
		want("at once", nil)
		time.Sleep(checkDelay)
		broken := map[string]string{"broken": "it has no eth0: " + errdefs.ErrPrecondition.Error()}
		want("after the first check", broken)
		h.set(func() { delete(h.fail, "net.check unclear") })
		time.Sleep(2 * checkPause)
		want("after more checks", broken)
		h.set(func() { delete(h.fail, "net.check broken") })
		time.Sleep(checkPause)
		want("mended", nil)
	})
}

// TestNetworkFaultOfTheDaemonBefore wants a fault that was noted to go when it is
// not there any more.
func TestNetworkFaultOfTheDaemonBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHost(), newDisk()
		c, kill := boot(t, h, d)
		id, _ := started(t, c, "web")
		if _, err := c.book.change(ctx, id, func(r *pod.Record) error {
			r.NetworkFault = "it has no eth0"
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		kill()
		c, _ = boot(t, h, d)
		time.Sleep(checkDelay)
		synctest.Wait()
		if r, err := c.FindPod(string(id)); err != nil || r.NetworkFault != "" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}
