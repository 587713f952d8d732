package lifecycle

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
)

// only returns the operation of a verb, or fails if there is not exactly one.
func only(t *testing.T, c *Core, verb string) ops.Operation {
	t.Helper()
	var found []ops.Operation
	for _, op := range c.Operations() {
		if op.Verb == verb {
			found = append(found, op)
		}
	}
	if len(found) != 1 {
		t.Fatalf("operations to %s: %v", verb, found)
	}
	return found[0]
}

// at says whether an operation of that verb is at that stage.
func at(c *Core, verb, stage string) bool {
	return slices.ContainsFunc(c.Operations(), func(op ops.Operation) bool { return op.Verb == verb && op.Stage == stage })
}

func hold(h *host, step string) (release func()) {
	c := make(chan struct{})
	h.set(func() { h.hold[step] = c })
	return func() {
		h.set(func() { delete(h.hold, step) })
		close(c)
	}
}

// Every operation is listed while it is at work, by its verb, its object and
// the stage that it hangs at, and is gone from the list when it is over.
func TestOperationsAreListed(t *testing.T) {
	for _, tt := range []struct {
		step, verb, name, stage string
		do                      func(c *Core, p pod.ID, ctr pod.ContainerID) error
	}{
		{"net.attach", "run", "default/other", "attach network", func(c *Core, _ pod.ID, _ pod.ContainerID) error {
			_, err := c.RunPod(ctx, podConfig("other"), "")
			return err
		}},
		{"bundle.write", "create", "default/web/second", "write bundle", func(c *Core, p pod.ID, _ pod.ContainerID) error {
			_, err := c.CreateContainer(ctx, p, containerConfig("second"))
			return err
		}},
		{"start", "start", "default/web/created", "run", func(c *Core, p pod.ID, _ pod.ContainerID) error {
			id, err := c.CreateContainer(ctx, p, containerConfig("created"))
			if err != nil {
				return err
			}
			return c.StartContainer(ctx, id)
		}},
		{"kill SIGKILL", "stop", "default/web/main", "kill", func(c *Core, _ pod.ID, id pod.ContainerID) error {
			return c.StopContainer(ctx, id, 0)
		}},
		{"update", "update", "default/web/main", "update", func(c *Core, _ pod.ID, id pod.ContainerID) error {
			return c.UpdateContainer(ctx, id, &pod.Resources{CPUShares: 5})
		}},
		{"exec", "exec in", "default/web/main", "run", func(c *Core, _ pod.ID, id pod.ContainerID) error {
			_, err := c.Exec(ctx, id, ExecOptions{Command: []string{"true"}})
			return err
		}},
		{"reopen", "reopen log of", "default/web/main", "ask the monitor", func(c *Core, _ pod.ID, id pod.ContainerID) error {
			return c.ReopenLog(ctx, id)
		}},
		{"root.unmount", "remove", "default/web/main", "unmount", func(c *Core, _ pod.ID, id pod.ContainerID) error {
			return c.RemoveContainer(ctx, id)
		}},
		{"net.detach", "stop", "default/web", "detach network", func(c *Core, p pod.ID, _ pod.ContainerID) error {
			return c.StopPod(ctx, p)
		}},
		{"bundle.remove", "remove", "default/web", "remove sandbox", func(c *Core, p pod.ID, id pod.ContainerID) error {
			return c.RemovePod(ctx, p)
		}},
	} {
		t.Run(tt.verb+" "+tt.stage, func(t *testing.T) {
			h := newHost()
			c, _ := boot(t, h, newDisk())
			p, ctr := started(t, c, "web")
			if tt.step == "bundle.remove" {
				if err := c.RemoveContainer(ctx, ctr); err != nil {
					t.Fatal(err)
				}
			}
			begun := h.count(tt.step)
			release := hold(h, tt.step)
			done := make(chan error, 1)
			go func() { done <- tt.do(c, p, ctr) }()
			eventually(t, tt.step, func() bool { return h.count(tt.step) > begun })
			op := only(t, c, tt.verb)
			if op.Name != tt.name || op.Stage != tt.stage || op.Waiting != 1 || op.Began.IsZero() || op.Entered.Before(op.Began) {
				t.Errorf("listed as %+v", op)
			}
			release()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			eventually(t, "the end of all operations", func() bool { return len(c.Operations()) == 0 })
		})
	}
}

func TestOperationsCountWhoWaits(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	release := hold(h, "net.attach")
	results := make(chan error, 5)
	for range 5 {
		go func() {
			_, err := c.RunPod(ctx, podConfig("web"), "")
			results <- err
		}()
	}
	eventually(t, "five who wait", func() bool {
		ops := c.Operations()
		return len(ops) == 1 && ops[0].Waiting == 5
	})
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.RunPod(gone, podConfig("web"), ""); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if n := only(t, c, ops.Run).Waiting; n != 5 {
		t.Errorf("%d wait, after one has left", n)
	}
	release()
	for range 5 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// A request with the name of one in flight and another configuration gets
// neither its result nor its failure.
func TestADifferentRequestIsRefusedAtOnce(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	p, _ := started(t, c, "web")

	release := hold(h, "net.attach")
	first := make(chan error, 1)
	go func() { _, err := c.RunPod(ctx, podConfig("other"), "crun"); first <- err }()
	eventually(t, "attach", func() bool { return h.count("net.attach") == 2 })
	different := podConfig("other")
	different.Hostname = "x"
	for name, try := range map[string]func() (pod.ID, error){
		"configuration": func() (pod.ID, error) { return c.RunPod(ctx, different, "crun") },
		"handler":       func() (pod.ID, error) { return c.RunPod(ctx, podConfig("other"), "runc") },
	} {
		if _, err := try(); !errors.Is(err, errdefs.ErrAlreadyExists) || !strings.Contains(err.Error(), `stage "attach network"`) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	joined := make(chan error, 1)
	go func() { _, err := c.RunPod(ctx, podConfig("other"), ""); joined <- err }() // crun is the default
	eventually(t, "two who wait", func() bool { return only(t, c, ops.Run).Waiting == 2 })
	release()
	if err := errors.Join(<-first, <-joined); err != nil {
		t.Fatal(err)
	}

	release = hold(h, "root.mount")
	go func() { _, err := c.CreateContainer(ctx, p, containerConfig("second")); first <- err }()
	eventually(t, "mount", func() bool { return h.count("root.mount") == 2 })
	cfg := containerConfig("second")
	cfg.Image.Image = "other"
	if _, err := c.CreateContainer(ctx, p, cfg); !errors.Is(err, errdefs.ErrAlreadyExists) || !strings.Contains(err.Error(), `stage "mount root file system"`) {
		t.Errorf("another container of that name: %v", err)
	}
	release()
	if err := <-first; err != nil {
		t.Fatal(err)
	}
}

// A client that gives up and comes back gets what went on: the same id.
func TestWhoComesBackGetsTheResult(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	p, _ := started(t, c, "web")
	release := hold(h, "bundle.write")
	impatient, cancel := context.WithCancel(ctx)
	gone := make(chan error, 1)
	go func() { _, err := c.CreateContainer(impatient, p, containerConfig("second")); gone <- err }()
	eventually(t, "write", func() bool { return h.count("bundle.write") == 2 })
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `still at stage "write bundle" after`) {
		t.Fatalf("the error names no stage or age: %v", err)
	}
	if n := only(t, c, ops.Create).Waiting; n != 0 {
		t.Errorf("%d wait", n)
	}
	release()
	first, err := c.CreateContainer(ctx, p, containerConfig("second"))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.CreateContainer(ctx, p, containerConfig("second")); again != first || err != nil {
		t.Fatalf("asked again: %s, %v; want %s", again, err, first)
	}
	if n := h.count("bundle.write"); n != 2 {
		t.Errorf("the container was made %d times", n-1)
	}
}

// A pod whose container hangs while it is made can be stopped and removed, and
// a container that starts at that moment does not outlive the pod.
func TestStopPodWaitsForWhatIsBeingMade(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	p, _ := started(t, c, "web")
	second, err := c.CreateContainer(ctx, p, containerConfig("second"))
	if err != nil {
		t.Fatal(err)
	}
	release := hold(h, "start")
	start := make(chan error, 1)
	go func() { start <- c.StartContainer(ctx, second) }()
	eventually(t, "start", func() bool { return h.count("start") == 2 })
	stop := make(chan error, 1)
	go func() { stop <- c.StopPod(ctx, p) }()
	eventually(t, "stop waits for the start", func() bool {
		return at(c, ops.Stop, "wait for the end of: start container default/web/second")
	})
	release()
	if err := errors.Join(<-start, <-stop); err != nil {
		t.Fatal(err)
	}
	if got := state(t, c, second); got.State != pod.Exited {
		t.Errorf("a container is %s in a stopped pod", got.State)
	}
}

// StopContainer during a start does not say "it does not run".
func TestStopWaitsForAStart(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	p, _ := started(t, c, "web")
	second, err := c.CreateContainer(ctx, p, containerConfig("second"))
	if err != nil {
		t.Fatal(err)
	}
	release := hold(h, "start")
	start := make(chan error, 1)
	go func() { start <- c.StartContainer(ctx, second) }()
	eventually(t, "start", func() bool { return h.count("start") == 2 })
	stop := make(chan error, 1)
	go func() { stop <- c.StopContainer(ctx, second, 0) }()
	eventually(t, "stop waits for the start", func() bool {
		return at(c, ops.Stop, "wait for the end of: start container default/web/second")
	})
	release()
	if err := errors.Join(<-start, <-stop); err != nil {
		t.Fatal(err)
	}
	if got := state(t, c, second); got.State != pod.Exited {
		t.Errorf("after the stop it is %s", got.State)
	}
}

// A command that cannot be forgotten, as its process is stuck, is later.
func TestACommandIsForgottenLater(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	_, ctr := started(t, c, "web")
	h.set(func() { h.fail["exec.close"] = errBoom })
	x, err := c.Exec(ctx, ctr, ExecOptions{Command: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Close(ctx); !errors.Is(err, errBoom) {
		t.Errorf("close: %v", err)
	}
	eventually(t, "another attempt", func() bool { return h.count("exec.close") > 1 })
	h.set(func() { delete(h.fail, "exec.close") })
	tried := h.count("exec.close")
	eventually(t, "the last attempt", func() bool { return h.count("exec.close") > tried })
	if x, err = c.Exec(ctx, ctr, ExecOptions{Command: []string{"true"}}); err == nil {
		err = x.Close(ctx)
	}
	if err != nil {
		t.Error(err)
	}
}

// An operation that hangs costs neither other pods anything, nor the end of the
// core more than the time it has for that.
func TestAStuckOperationIsLeftBehind(t *testing.T) {
	h := newHost()
	c := open(t, h, newDisk())
	release := hold(h, "net.attach")
	defer release()
	stuck := make(chan error, 1)
	go func() { _, err := c.RunPod(ctx, podConfig("stuck"), ""); stuck <- err }()
	eventually(t, "attach", func() bool { return h.count("net.attach") == 1 })
	left := c.inAir.End(time.Millisecond, time.Millisecond)
	if len(left) != 1 || left[0].String() != "run pod default/stuck" || left[0].Stage != "attach network" {
		t.Fatalf("left behind: %+v", left)
	}
	if _, err := c.RunPod(ctx, podConfig("web"), ""); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Errorf("a new operation at the end: %v", err)
	}
}
