package lifecycle

import (
	"errors"
	"testing"
	"time"

	"fairlead.run/internal/pod"
)

// What could neither be made nor taken back stays on record, and is taken back
// when that works again: by the core itself, or by the same request.
func TestUnmadePodIsTakenBackLater(t *testing.T) {
	for name, ask := range map[string]bool{"by the core": false, "by the same request": true} {
		t.Run(name, func(t *testing.T) {
			h := newHost()
			c, _ := boot(t, h, newDisk())
			h.set(func() { h.fail["sandbox.files"], h.fail["net.detach"] = errBoom, errBoom })
			if _, err := c.RunPod(ctx, podConfig("web"), ""); !errors.Is(err, errBoom) {
				t.Fatalf("got %v", err)
			}
			if len(c.Pods()) != 1 {
				t.Fatal("the record is gone, and the network is not")
			}
			h.set(func() { clear(h.fail) })
			if ask {
				id, err := c.RunPod(ctx, podConfig("web"), "")
				if err != nil {
					t.Fatal(err)
				}
				if err := c.RemovePod(ctx, id); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "nothing is left", func() bool { return len(h.left()) == 0 && len(c.Pods()) == 0 })
		})
	}
}

func TestUnmadeContainerIsTakenBackLater(t *testing.T) {
	for name, ask := range map[string]bool{"by the core": false, "by the same request": true} {
		t.Run(name, func(t *testing.T) {
			h := newHost()
			c, _ := boot(t, h, newDisk())
			id, err := c.RunPod(ctx, podConfig("web"), "")
			if err != nil {
				t.Fatal(err)
			}
			before := len(h.left())
			h.set(func() { h.fail["bundle.write"], h.fail["root.remove"] = errBoom, errBoom })
			if _, err := c.CreateContainer(ctx, id, containerConfig("a")); !errors.Is(err, errBoom) {
				t.Fatalf("got %v", err)
			}
			if r, _ := c.FindPod(string(id)); len(r.Containers) != 1 {
				t.Fatal("the record is gone, and the writable layer is not")
			}
			h.set(func() { clear(h.fail) })
			if ask {
				ctr, err := c.CreateContainer(ctx, id, containerConfig("a"))
				if err != nil {
					t.Fatal(err)
				}
				if err := c.RemoveContainer(ctx, ctr); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "nothing is left", func() bool {
				r, err := c.FindPod(string(id))
				return err == nil && len(r.Containers) == 0 && len(h.left()) == before
			})
		})
	}
}

// The end of a process is recorded even where that failed the first time.
func TestEndIsRecordedLater(t *testing.T) {
	h, d := newHost(), newDisk()
	c, _ := boot(t, h, d)
	_, ctr := started(t, c, "web")
	d.refuse(errBoom)
	h.die(string(ctr), pod.Exit{Code: 7})
	eventually(t, "the first attempt", func() bool { return d.refused() > 0 })
	d.refuse(nil)
	eventually(t, "the end is on record", func() bool { return state(t, c, ctr).ExitCode == 7 })
}

// A start that cannot be recorded leaves no process beside the next attempt.
func TestStartThatCannotBeRecorded(t *testing.T) {
	h, d := newHost(), newDisk()
	c, _ := boot(t, h, d)
	id, err := c.RunPod(ctx, podConfig("web"), "")
	if err != nil {
		t.Fatal(err)
	}
	ctr, err := c.CreateContainer(ctx, id, containerConfig("a"))
	if err != nil {
		t.Fatal(err)
	}
	before := len(h.left())
	d.refuse(errBoom)
	old := pod.Exit{Code: 137, FinishedAt: time.Now()}
	if err := c.StartContainer(ctx, ctr); !errors.Is(err, errBoom) {
		t.Fatalf("got %v", err)
	}
	if left := h.left(); len(left) != before {
		t.Fatal(left)
	}
	d.refuse(nil)
	// The end of the first process is told when it likes, and is not the second's.
	c.exited(string(ctr), old)
	if err := c.StartContainer(ctx, ctr); err != nil {
		t.Fatal(err)
	}
	c.exited(string(ctr), old)
	if got := state(t, c, ctr); got.State != pod.Running {
		t.Errorf("after the end of the first process: %+v", got)
	}
	h.die(string(ctr), pod.Exit{Code: 3, FinishedAt: time.Now()})
	eventually(t, "its own end", func() bool { return state(t, c, ctr).ExitCode == 3 })
}
