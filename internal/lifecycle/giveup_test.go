package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
)

// hung makes a runtime hang in a step and sends a request that gets to it.
func hung(t *testing.T, h *host, step string, call func() error) <-chan error {
	t.Helper()
	h.set(func() { h.hangs = map[string]bool{step: true} })
	before := h.count(step)
	failed := make(chan error, 1)
	go func() { failed <- call() }()
	eventually(t, "the runtime hangs", func() bool { return h.count(step) > before })
	return failed
}

func created(t *testing.T, c *Core, name string) (pod.ID, pod.ContainerID) {
	t.Helper()
	p, err := c.RunPod(ctx, podConfig(name), "")
	if err != nil {
		t.Fatal(err)
	}
	id, err := c.CreateContainer(ctx, p, containerConfig("main"))
	if err != nil {
		t.Fatal(err)
	}
	return p, id
}

// Whoever stops or removes a container or its pod gives up what hangs in its
// runtime, and the container never runs.
func TestWhatHangsIsGivenUp(t *testing.T) {
	endings := map[string]func(*Core, pod.ID, pod.ContainerID) error{
		"stop":       func(c *Core, _ pod.ID, id pod.ContainerID) error { return c.StopContainer(ctx, id, 0) },
		"remove":     func(c *Core, _ pod.ID, id pod.ContainerID) error { return c.RemoveContainer(ctx, id) },
		"stop pod":   func(c *Core, p pod.ID, _ pod.ContainerID) error { return c.StopPod(ctx, p) },
		"remove pod": func(c *Core, p pod.ID, _ pod.ContainerID) error { return c.RemovePod(ctx, p) },
	}
	requests := map[string]func(*Core, pod.ContainerID) error{
		"start": func(c *Core, id pod.ContainerID) error { return c.StartContainer(ctx, id) },
		"update": func(c *Core, id pod.ContainerID) error {
			return c.UpdateContainer(ctx, id, &pod.Resources{CPUShares: 5})
		},
		"exec": func(c *Core, id pod.ContainerID) error {
			_, err := c.Exec(ctx, id, ExecOptions{Command: []string{"true"}})
			return err
		},
	}
	for step, request := range requests {
		for name, ending := range endings {
			t.Run(step+"/"+name, func(t *testing.T) {
				h := newHost()
				c, _ := boot(t, h, newDisk())
				p, id := created(t, c, "web")
				if step != "start" {
					if err := c.StartContainer(ctx, id); err != nil {
						t.Fatal(err)
					}
				}
				failed := hung(t, h, step, func() error { return request(c, id) })
				if err := ending(c, p, id); err != nil {
					t.Error(err)
				}
				if _, ctr, err := c.FindContainer(string(id)); err == nil && ctr.State != pod.Exited {
					t.Errorf("the container is %s", ctr.State)
				}
				if err := c.RemovePod(ctx, p); err != nil {
					t.Error(err)
				}
				if err := <-failed; !errors.Is(err, errdefs.ErrPrecondition) || !strings.Contains(err.Error(), "is being ") {
					t.Errorf("what hung ended with: %v", err)
				}
				if n := h.count(step); n > 1 {
					t.Errorf("the runtime hung %d times", n)
				}
				if left := h.left(); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			})
		}
	}
}

// A stop does not wait for a start that cannot be given up: the kernel may hold it.
func TestStopLeavesAStartThatIsStuck(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	_, id := created(t, c, "web")
	release := hold(h, "start")
	done := make(chan error, 1)
	go func() { done <- c.StartContainer(ctx, id) }()
	eventually(t, "the start", func() bool { return at(c, ops.Start, "run") })
	err := c.StopContainer(ctx, id, 0)
	if !errors.Is(err, errdefs.ErrDeadline) || !strings.Contains(fmt.Sprint(err), `still at stage "run"`) {
		t.Errorf("got %v", err)
	}
	release()
	<-done
}

// A start that takes no longer than the grace of a stop comes to its end, and the
// container is asked to end like any other.
func TestStopWaitsForAStartWithinItsGrace(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	_, id := created(t, c, "web")
	release := hold(h, "start")
	started, stopped := make(chan error, 1), make(chan error, 1)
	go func() { started <- c.StartContainer(ctx, id) }()
	eventually(t, "the start", func() bool { return at(c, ops.Start, "run") })
	go func() { stopped <- c.StopContainer(ctx, id, time.Hour) }()
	eventually(t, "the stop waits", func() bool { return at(c, ops.Stop, "wait for the end of: start container default/web/main") })
	release()
	if err := <-started; err != nil {
		t.Skipf("the machine was too busy for a start within %s: %v", startPatience, err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if h.count("kill SIGTERM") != 1 || h.count("kill SIGKILL") != 0 {
		t.Errorf("%d SIGTERM, %d SIGKILL", h.count("kill SIGTERM"), h.count("kill SIGKILL"))
	}
}

// Nothing new begins on a container that is being removed.
func TestNothingBeginsInAContainerThatIsRemoved(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	_, id := created(t, c, "web")
	release := hold(h, "root.unmount")
	removed := make(chan error, 1)
	go func() { removed <- c.RemoveContainer(ctx, id) }()
	eventually(t, "the removal", func() bool { return at(c, ops.Remove, "unmount") })
	for what, err := range map[string]error{
		"start":  c.StartContainer(ctx, id),
		"update": c.UpdateContainer(ctx, id, &pod.Resources{CPUShares: 5}),
	} {
		if !errors.Is(err, errdefs.ErrPrecondition) || !strings.Contains(err.Error(), "is being removed") {
			t.Errorf("%s: %v", what, err)
		}
	}
	release()
	if err := <-removed; err != nil {
		t.Error(err)
	}
}

// The limits before an update that hung are put back later, by nobody who is waited
// for.
func TestAnUpdateThatHungIsTakenBackLater(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	_, id := started(t, c, "web")
	h.set(func() {
		h.limit = -1
		h.once = map[string]error{"update": fmt.Errorf("it hung: %w", errdefs.ErrDeadline)}
	})
	if err := c.UpdateContainer(context.Background(), id, &pod.Resources{MemoryLimit: 7}); !errors.Is(err, errdefs.ErrDeadline) {
		t.Fatalf("got %v", err)
	}
	if n := h.count("update"); n != 1 {
		t.Errorf("the runtime was asked %d times while the caller waited", n)
	}
	eventually(t, "the limits are put back", func() bool { return h.count("update") == 2 })
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.limit != 0 {
		t.Errorf("the bundle says %d", h.limit)
	}
}
