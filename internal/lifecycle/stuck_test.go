package lifecycle

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
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

// A daemon that leaves before it has looked at all pods says nothing of that: a
// command's own daemon would say it to the user, and the next one looks again.
// What fails is said.
func TestLeavingEarlyIsNoFailedRecovery(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fails bool
	}{{"leaves", false}, {"fails", true}} {
		t.Run(tt.name, func(t *testing.T) {
			h, d := newHost(), newDisk()
			c, kill := boot(t, h, d)
			web, _ := started(t, c, "web")
			if tt.fails { // the next daemon repeats what a stop does
				if err := c.StopPod(ctx, web); err != nil {
					t.Fatal(err)
				}
				h.set(func() { h.fail["net.detach"] = errBoom })
			}
			kill()
			release := hold(h, "sandbox.observe web")
			c = open(t, h, d)
			var said bytes.Buffer
			c.log = slog.New(slog.NewTextHandler(&said, nil))
			ctx, leave := context.WithCancel(ctx)
			defer leave()
			ended := make(chan struct{})
			go func() { c.recover(ctx); close(ended) }()
			if !tt.fails {
				eventually(t, "the look", func() bool { return h.count("sandbox.observe web") > 0 })
				leave()
			}
			<-ended
			release()
			c.inAir.End(drainTime, leaveTime)
			if failed := strings.Contains(said.String(), "a pod could not be recovered"); failed != tt.fails {
				t.Errorf("said:\n%s", &said)
			}
		})
	}
}

// Taking a container back that hangs is listed, and keeps no pod from being
// taken back.
func TestTakingBackThatHangsDelaysNoOther(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	web, err := c.RunPod(ctx, podConfig("web"), "")
	if err != nil {
		t.Fatal(err)
	}
	h.set(func() { h.fail["bundle.write"], h.fail["root.remove"] = errBoom, errBoom })
	if _, err := c.CreateContainer(ctx, web, containerConfig("a")); !errors.Is(err, errBoom) {
		t.Fatalf("got %v", err)
	}
	release := hold(h, "root.remove")
	h.set(func() { clear(h.fail) })
	eventually(t, "the container being taken back", func() bool { return len(c.Operations()) == 1 })
	if op := only(t, c, ops.TakeBack); op.Name != "default/web/a" {
		t.Errorf("listed as %+v", op)
	}
	h.set(func() { h.fail["sandbox.files"], h.fail["net.detach"] = errBoom, errBoom })
	if _, err := c.RunPod(ctx, podConfig("other"), ""); !errors.Is(err, errBoom) {
		t.Fatalf("got %v", err)
	}
	h.set(func() { clear(h.fail) })
	eventually(t, "only the pod that hangs is left", func() bool { return len(c.Pods()) == 1 })
	release()
	eventually(t, "the container is taken back", func() bool {
		r, err := c.FindPod(string(web))
		return err == nil && len(r.Containers) == 0 && len(c.Operations()) == 0
	})
}

// What the past has left and cannot be deleted, because that hangs, keeps
// nothing else from being released.
func TestAReleaseThatHangsDelaysNoOther(t *testing.T) {
	h := newHost()
	h.set(func() { h.things["net of-nobody"] = true; h.things["root of-nobody"] = true })
	release := hold(h, "root.remove")
	boot(t, h, newDisk())
	gone := func(thing string) func() bool {
		return func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return !h.things[thing]
		}
	}
	eventually(t, "the release of the address", gone("net of-nobody"))
	if gone("root of-nobody")() {
		t.Error("the layer whose removal hangs is gone")
	}
	release()
	eventually(t, "the release of the layer", gone("root of-nobody"))
}
