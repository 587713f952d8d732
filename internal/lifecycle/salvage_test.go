package lifecycle

import (
	"errors"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// lose runs two pods and makes one's record unreadable, or drops it, while no
// core runs.
func lose(t *testing.T, drop bool) (h *host, d *disk, good, bad pod.ID, goodCtr, badCtr pod.ContainerID) {
	t.Helper()
	h, d = newHost(), newDisk()
	c, kill := boot(t, h, d)
	good, goodCtr = started(t, c, "good")
	bad, badCtr = started(t, c, "bad")
	kill()
	h.traces = map[pod.ContainerID]pod.ID{goodCtr: good, badCtr: bad}
	d.records[bad] = d.records[bad][:40]
	if drop {
		delete(d.records, bad)
	}
	return h, d, good, bad, goodCtr, badCtr
}

func TestALostRecordIsOnePodsTrouble(t *testing.T) {
	for name, drop := range map[string]bool{"unreadable": false, "gone": true} {
		t.Run(name, func(t *testing.T) {
			h, d, good, bad, goodCtr, badCtr := lose(t, drop)
			before := string(d.records[bad])
			c, _ := boot(t, h, d)
			for _, id := range []pod.ID{good, bad} {
				if err := c.book.await(ctx, id); err != nil {
					t.Fatal(err)
				}
			}
			r, err := c.FindPod(string(bad))
			if err != nil || r.State != pod.Unknown || r.Reason == "" || len(r.Containers) != 1 {
				t.Fatalf("%+v %v", r, err)
			}
			// Its container was seen alive, and so it is.
			if got := state(t, c, badCtr); got.State != pod.Running || got.Process == nil || got.Message != "" {
				t.Fatalf("%+v", got)
			}
			if state(t, c, goodCtr).State != pod.Running {
				t.Fatal("the other pod suffered")
			}
			if _, err := c.CreateContainer(ctx, bad, containerConfig("more")); !errors.Is(err, errdefs.ErrPrecondition) {
				t.Fatalf("it takes containers: %v", err)
			}
			// What could not be read is left for who can.
			if string(d.records[bad]) != before {
				t.Fatal("the record was overwritten")
			}
			if err := c.StopPod(ctx, bad); err != nil {
				t.Fatal(err)
			}
			if got := state(t, c, badCtr); got.State != pod.Exited {
				t.Fatalf("%+v", got)
			}
			if err := c.RemovePod(ctx, bad); err != nil {
				t.Fatal(err)
			}
			if _, there := d.records[bad]; there {
				t.Fatal("the record is still there")
			}
			if err := c.RemovePod(ctx, good); err != nil {
				t.Fatal(err)
			}
			if left := h.left(); len(left) > 0 {
				t.Fatalf("left: %v", left)
			}
		})
	}
}

// As long as not everything has an owner, nothing is deleted for having none.
func TestNothingIsSweptWhileSomethingIsUnclear(t *testing.T) {
	for name, unclear := range map[string]func(h *host){
		"a lost record": func(*host) {},
		"a trace that cannot be read": func(h *host) {
			delete(h.things, "sandbox lost")
			h.fail["trace"] = errBoom
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost()
			h.things["root orphan"], h.things["files orphan"], h.things["sandbox lost"] = true, true, true
			unclear(h)
			c := open(t, h, newDisk())
			c.recover(ctx)
			if !h.things["root orphan"] {
				t.Error("the writable layer was deleted")
			}
			if !h.things["files orphan"] {
				t.Error("the files of a pod were deleted")
			}
		})
	}
}

// After a boot, what outlives it and is nobody's goes; what fails is tried again.
func TestFilesOfThePastAreSwept(t *testing.T) {
	h, d := newHost(), newDisk()
	c, kill := boot(t, h, d)
	id, _ := started(t, c, "web")
	kill()
	h.set(func() { h.things["files "+string(id)], h.things["files orphan"] = true, true })
	h.set(func() { h.fail["sandbox.remove"] = errBoom })
	c = open(t, h, d)
	if err := c.sweep(ctx); !errors.Is(err, errBoom) || !h.things["files orphan"] {
		t.Errorf("%v, %v", err, h.things)
	}
	h.set(func() { delete(h.fail, "sandbox.remove") })
	if err := c.sweep(ctx); err != nil || h.things["files orphan"] || !h.things["files "+string(id)] {
		t.Errorf("%v, %v", err, h.things)
	}
}

// A handler that is in no configuration any more keeps its containers from
// being observed; that is said, and nothing is given up.
func TestContainersOfAMissingHandlerAreUnknown(t *testing.T) {
	h, d := newHost(), newDisk()
	c, kill := boot(t, h, d)
	id, ctr := started(t, c, "web")
	kill()
	h.set(func() { h.fail["serving"] = errBoom })
	c, _ = boot(t, h, d)
	if err := c.book.await(ctx, id); err != nil {
		t.Fatal(err)
	}
	if got := state(t, c, ctr); got.State != pod.Unknown || got.Reason != pod.ReasonUnknown || got.Message == "" {
		t.Fatalf("%+v", got)
	}
}

// Deleting layers that nobody uses takes as long as the disk takes. Neither the
// first request nor any pod waits for it, and its failure stops nothing.
func TestImagesDelayNoStart(t *testing.T) {
	h, d := newHost(), newDisk()
	c, kill := boot(t, h, d)
	id, ctr := started(t, c, "web")
	kill()
	release := make(chan struct{})
	h.set(func() { h.hold["image.sync"], h.fail["image.sync"] = release, errBoom })
	c, kill = boot(t, h, d)
	if err := c.book.await(ctx, id); err != nil {
		t.Fatal(err)
	}
	if err := c.RemovePod(ctx, id); err != nil {
		t.Fatal(err)
	}
	close(release)
	kill()
	h.set(func() {
		if _, told := h.uses[ctr]; !told || h.calls["image.sync"] != 2 {
			t.Errorf("told of %v, %d times", h.uses, h.calls["image.sync"])
		}
	})
}

// What the last boot held is released although it could not be at first, as
// when a network's plugins come up later than the daemon.
func TestReleaseIsTriedAgain(t *testing.T) {
	h := newHost()
	h.things["root old"], h.things["net old"] = true, true
	steps := []string{"image.sync", "root.remove", "net.reconcile"}
	for _, s := range steps {
		h.fail[s] = errBoom
	}
	_, kill := boot(t, h, newDisk())
	defer kill()
	for _, s := range steps {
		eventually(t, s+" is tried", func() bool { return h.count(s) > 0 })
	}
	h.set(func() { clear(h.fail) })
	eventually(t, "everything is released", func() bool { return len(h.left()) == 0 && h.count("image.sync") > 1 })
}

// An observation that fails for a moment makes nothing Unknown.
func TestAFailedObservationIsRepeated(t *testing.T) {
	for _, step := range []string{"observe", "sandbox.observe"} {
		t.Run(step, func(t *testing.T) {
			h, d := newHost(), newDisk()
			c, kill := boot(t, h, d)
			id, ctr := started(t, c, "web")
			kill()
			h.set(func() { h.once = map[string]error{step: errBoom} })
			c, _ = boot(t, h, d)
			if err := c.book.await(ctx, id); err != nil {
				t.Fatal(err)
			}
			if r, err := c.FindPod(string(id)); err != nil || r.State != pod.Running || state(t, c, ctr).State != pod.Running || len(h.once) > 0 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}
