package lifecycle

import (
	"errors"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Where all containers of a pod run in one process, that has the limits of all.
func TestLimitsTogether(t *testing.T) {
	h := newHost()
	h.together = true
	c, _ := boot(t, h, newDisk())
	cfg := podConfig("web")
	cfg.Overhead = &pod.Resources{MemoryLimit: 1000}
	id, err := c.RunPod(ctx, cfg, "")
	if err != nil {
		t.Fatal(err)
	}
	start := func(name string, limit int64) pod.ContainerID {
		t.Helper()
		of := containerConfig(name)
		of.Resources = &pod.Resources{MemoryLimit: limit}
		ctr, err := c.CreateContainer(ctx, id, of)
		if err == nil {
			err = c.StartContainer(ctx, ctr)
		}
		if err != nil {
			t.Fatal(err)
		}
		return ctr
	}
	want := func(limit int64) {
		t.Helper()
		if h.limit != limit {
			t.Errorf("the limit is %d, want %d", h.limit, limit)
		}
	}
	first := start("first", 10)
	want(1010)
	second := start("second", 200)
	want(1210)
	if err := c.UpdateContainer(ctx, first, &pod.Resources{MemoryLimit: 20}); err != nil {
		t.Fatal(err)
	}
	want(1220)
	h.set(func() { h.once = map[string]error{"sandbox.limit": errdefs.ErrPrecondition} })
	if err := c.UpdateContainer(ctx, first, &pod.Resources{MemoryLimit: 5}); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Errorf("less than is in use: %v", err)
	}
	want(1220)
	if got := state(t, c, first).Config.Resources.MemoryLimit; got != 20 {
		t.Errorf("%d is recorded", got)
	}
	if err := c.UpdateContainer(ctx, first, &pod.Resources{CpusetCPUs: "0"}); !errors.Is(err, errdefs.ErrUnimplemented) {
		t.Errorf("processors of one container: %v", err)
	}
	if h.count("update") != 0 {
		t.Errorf("the runtime was asked: %v", h.calls)
	}
	// What has ended uses nothing, and what is in use is no reason not to start.
	if err := c.StopContainer(ctx, second, 0); err != nil {
		t.Fatal(err)
	}
	h.set(func() { h.once = map[string]error{"sandbox.limit": errdefs.ErrPrecondition} })
	third := start("third", 300)
	want(1220)
	if err := c.UpdateContainer(ctx, third, &pod.Resources{MemoryLimit: 400}); err != nil {
		t.Fatal(err)
	}
	want(1420)
	if err := c.ResizePod(ctx, id, nil, &pod.Resources{MemoryLimit: 2000}); err != nil {
		t.Fatal(err)
	}
	want(2420)
	h.set(func() { h.once = map[string]error{"sandbox.limit": errBoom} })
	ctr, err := c.CreateContainer(ctx, id, containerConfig("fourth"))
	if err == nil {
		err = c.StartContainer(ctx, ctr)
	}
	if !errors.Is(err, errBoom) {
		t.Errorf("a limit that cannot be set: %v", err)
	}
}

// TestDeletedTogether deletes the process of a pod once more when its containers were deleted,
// where they run in it.
func TestDeletedTogether(t *testing.T) {
	for _, together := range []bool{true, false} {
		h := newHost()
		h.together = together
		c, _ := boot(t, h, newDisk())
		id, err := c.RunPod(ctx, podConfig("web"), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.CreateContainer(ctx, id, containerConfig("c")); err != nil {
			t.Fatal(err)
		}
		if err := c.StopPod(ctx, id); err != nil {
			t.Fatal(err)
		}
		stopped := len(h.deleted)
		if err := c.RemovePod(ctx, id); err != nil {
			t.Fatal(err)
		}
		after := h.deleted[stopped:]
		if again := len(after) > 0 && after[len(after)-1] == string(id); again != together {
			t.Errorf("together %t: %q were deleted after the stop of pod %s", together, after, id)
		}
	}
}
