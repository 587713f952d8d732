package lifecycle

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

var ctx = context.Background()

// eventually is for what happens on another goroutine; how long it takes
// decides nothing.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func started(t *testing.T, c *Core, name string) (pod.ID, pod.ContainerID) {
	t.Helper()
	id, err := c.RunPod(ctx, podConfig(name), "")
	if err != nil {
		t.Fatal(err)
	}
	ctr, err := c.CreateContainer(ctx, id, containerConfig("main"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.StartContainer(ctx, ctr); err != nil {
		t.Fatal(err)
	}
	return id, ctr
}

func state(t *testing.T, c *Core, id pod.ContainerID) *pod.Container {
	t.Helper()
	_, ctr, err := c.FindContainer(string(id))
	if err != nil {
		t.Fatal(err)
	}
	return ctr
}

// A pod that is being made while recovery begins is not one to roll back.
func TestRecoveryLeavesNewPodsAlone(t *testing.T) {
	h := newHost()
	c := open(t, h, newDisk())
	release := make(chan struct{})
	h.set(func() { h.hold["net.attach"] = release })
	done := make(chan error, 1)
	go func() { _, err := c.RunPod(ctx, podConfig("web"), ""); done <- err }()
	eventually(t, "attach", func() bool { return h.count("net.attach") == 1 })
	c.recover(ctx)
	close(release)
	if err := <-done; err != nil || len(c.Pods()) != 1 {
		t.Fatal(err, c.Pods())
	}
}

func TestWholeLifeLeavesNothing(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	id, ctr := started(t, c, "web")
	if got := state(t, c, ctr); got.State != pod.Running || got.Process == nil {
		t.Fatalf("%+v", got)
	}
	if err := c.StopContainer(ctx, ctr, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := state(t, c, ctr); got.State != pod.Exited || got.ExitCode != 137 || got.Reason != reasonError {
		t.Fatalf("%+v", got)
	}
	for range 2 { // idempotent, to the end
		for _, err := range []error{c.RemoveContainer(ctx, ctr), c.StopPod(ctx, id), c.RemovePod(ctx, id)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if left := h.left(); len(left) > 0 || len(c.Pods()) > 0 {
		t.Fatal(left, c.Pods())
	}
}

func TestRunPodFailureUndoesEverything(t *testing.T) {
	for _, step := range []string{"sandbox.create", "net.attach", "sandbox.files", "bundle.sandbox", "start"} {
		t.Run(step, func(t *testing.T) {
			h := newHost()
			c, _ := boot(t, h, newDisk())
			cfg := podConfig("web")
			cfg.Security.Namespaces.PID = pod.NamespacePod // needs the sandbox process too
			h.set(func() { h.fail[step] = errBoom })
			if _, err := c.RunPod(ctx, cfg, ""); !errors.Is(err, errBoom) || !strings.Contains(err.Error(), "at stage") {
				t.Fatalf("got %v", err)
			}
			if left := h.left(); len(left) > 0 || len(c.Pods()) > 0 {
				t.Fatal(left, c.Pods())
			}
			h.set(func() { delete(h.fail, step) })
			id, err := c.RunPod(ctx, cfg, "")
			if err != nil {
				t.Fatalf("the same request after a failure: %v", err)
			}
			if err := c.RemovePod(ctx, id); err != nil {
				t.Fatal(err)
			}
			if left := h.left(); len(left) > 0 {
				t.Fatal(left)
			}
		})
	}
}

func TestCreateContainerFailureUndoesEverything(t *testing.T) {
	for _, step := range []string{"image.use", "root.mount", "bundle.write"} {
		t.Run(step, func(t *testing.T) {
			h := newHost()
			c, _ := boot(t, h, newDisk())
			id, err := c.RunPod(ctx, podConfig("web"), "")
			if err != nil {
				t.Fatal(err)
			}
			before := len(h.left())
			h.set(func() { h.fail[step] = errBoom })
			if _, err := c.CreateContainer(ctx, id, containerConfig("a")); !errors.Is(err, errBoom) {
				t.Fatalf("got %v", err)
			}
			if left := h.left(); len(left) != before {
				t.Fatal(left)
			}
			if r, _ := c.FindPod(string(id)); len(r.Containers) != 0 {
				t.Fatal("the container is still in the record")
			}
		})
	}
}

func TestTheSameRequestJoins(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	release := make(chan struct{})
	h.set(func() { h.hold["net.attach"] = release })
	impatient, cancel := context.WithCancel(ctx)
	first := make(chan error, 1)
	go func() { _, err := c.RunPod(impatient, podConfig("web"), ""); first <- err }()
	eventually(t, "attach", func() bool { return h.count("net.attach") == 1 })
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `"attach network"`) {
		t.Fatalf("the error does not name the stage: %v", err)
	}
	// Before the others ask: while it is looked at, they would be the different ones.
	other := podConfig("web")
	other.Hostname = "other"
	if _, err := c.RunPod(ctx, other, ""); !errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Errorf("a different pod of the same name joined: %v", err)
	}
	var wg sync.WaitGroup
	ids := make([]pod.ID, 8)
	for i := range ids {
		wg.Go(func() {
			var err error
			if ids[i], err = c.RunPod(ctx, podConfig("web"), ""); err != nil {
				t.Error(err)
			}
		})
	}
	close(release)
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("different pods: %v", ids)
		}
	}
	if n := h.count("sandbox.create"); n != 1 {
		t.Fatalf("%d sandboxes were made", n)
	}
	if _, err := c.RunPod(ctx, podConfig("web"), "runc"); !errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Fatalf("the same pod on another handler: %v", err)
	}
}

func TestUnknownHandlerLeavesNothing(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	if _, err := c.RunPod(ctx, podConfig("web"), "gvisor"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Fatal(err)
	}
	if len(c.Pods()) != 0 || h.count("sandbox.create") != 0 {
		t.Fatal("something was made")
	}
}

func TestStartFailureIsFinalAndSaysWhy(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	id, err := c.RunPod(ctx, podConfig("web"), "")
	if err != nil {
		t.Fatal(err)
	}
	ctr, err := c.CreateContainer(ctx, id, containerConfig("a"))
	if err != nil {
		t.Fatal(err)
	}
	h.set(func() { h.fail["start"] = errdefs.ErrUnavailable })
	if err := c.StartContainer(ctx, ctr); err == nil || state(t, c, ctr).State != pod.Created {
		t.Fatal("a monitor that is away must not use the container up", err)
	}
	h.set(func() { h.fail["start"] = errBoom })
	if err := c.StartContainer(ctx, ctr); !errors.Is(err, errBoom) {
		t.Fatal(err)
	}
	got := state(t, c, ctr)
	if got.State != pod.Exited || got.Reason != reasonStartError || got.ExitCode != codeStartError || !strings.Contains(got.Message, "boom") {
		t.Fatalf("%+v", got)
	}
	if err := c.StartContainer(ctx, ctr); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Fatal(err)
	}
}

func TestExitBeforeTheStartIsCommitted(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	id, err := c.RunPod(ctx, podConfig("web"), "")
	if err != nil {
		t.Fatal(err)
	}
	ctr, err := c.CreateContainer(ctx, id, containerConfig("a"))
	if err != nil {
		t.Fatal(err)
	}
	c.exited(string(ctr), pod.Exit{Code: 0, FinishedAt: time.Unix(9, 9)})
	if err := c.StartContainer(ctx, ctr); err != nil {
		t.Fatal(err)
	}
	if got := state(t, c, ctr); got.State != pod.Exited || got.Reason != reasonCompleted || !got.FinishedAt.Equal(time.Unix(9, 9)) {
		t.Fatalf("%+v", got)
	}
}

func TestEndReasons(t *testing.T) {
	for _, tt := range []struct {
		exit   pod.Exit
		code   int32
		reason string
	}{
		{pod.Exit{}, 0, reasonCompleted},
		{pod.Exit{Code: 3}, 3, reasonError},
		{pod.Exit{Code: 137, Signal: 9, OOMKilled: true}, 137, reasonOOMKilled},
		{pod.Exit{Code: 0, Lost: true}, codeLost, reasonUnknown},
	} {
		ctr := pod.Container{State: pod.Running}
		if err := end(&ctr, tt.exit); err != nil || ctr.ExitCode != tt.code || ctr.Reason != tt.reason || ctr.State != pod.Exited {
			t.Errorf("%+v: %+v %v", tt.exit, ctr, err)
		}
	}
}

func TestStopEscalatesAndAShorterGraceWins(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	_, ctr := started(t, c, "web")
	h.set(func() { h.procs[string(ctr)].obeys = false })
	patient := make(chan error, 1)
	go func() { patient <- c.StopContainer(ctx, ctr, time.Hour) }()
	eventually(t, "SIGTERM", func() bool { return h.count("kill SIGTERM") == 1 })
	if err := c.StopContainer(ctx, ctr, 0); err != nil {
		t.Fatal(err)
	}
	if err := <-patient; err != nil {
		t.Fatal(err)
	}
	if state(t, c, ctr).State != pod.Exited {
		t.Fatal("it lives")
	}
}

// However often and by whatever daemon a container is stopped, it is sent its
// stop signal once, unless that failed.
func TestStopSignalIsSentOnce(t *testing.T) {
	h, d := newHost(), newDisk()
	c, kill := boot(t, h, d)
	_, ctr := started(t, c, "web")
	h.set(func() {
		h.stuck = true
		h.once = map[string]error{"kill SIGTERM": errBoom}
	})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := c.StopContainer(ctx, ctr, time.Millisecond); !errors.Is(err, errdefs.ErrDeadline) {
				t.Errorf("a container that does not end: %v", err)
			}
		})
	}
	all.Wait()
	if n := h.count("kill SIGTERM"); n != 2 {
		t.Errorf("the stop signal was sent %d times, and was to be sent again after a failure only", n)
	}
	kill()
	c, _ = boot(t, h, d)
	h.set(func() { h.stuck = false })
	if err := c.StopContainer(ctx, ctr, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if n := h.count("kill SIGTERM"); n != 2 {
		t.Errorf("another daemon has sent the stop signal again")
	}
}

func TestStopOfAStuckProcessIsAnError(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	_, ctr := started(t, c, "web")
	h.set(func() { h.stuck = true })
	if err := c.StopContainer(ctx, ctr, 0); !errors.Is(err, errdefs.ErrDeadline) {
		t.Fatal(err)
	}
	if state(t, c, ctr).State != pod.Running {
		t.Fatal("what lives must not be reported as dead")
	}
}

func TestStopFailureCanBeRepeated(t *testing.T) {
	for _, step := range []string{"net.detach", "sandbox.stop", "root.unmount", "root.remove", "bundle.remove", "image.release", "sandbox.remove", "forget"} {
		t.Run(step, func(t *testing.T) {
			h := newHost()
			c, _ := boot(t, h, newDisk())
			id, _ := started(t, c, "web")
			h.set(func() { h.fail[step] = errBoom })
			if err := c.RemovePod(ctx, id); !errors.Is(err, errBoom) {
				t.Fatal(err)
			}
			if r, err := c.FindPod(string(id)); err != nil || r.State != pod.Exited {
				t.Fatalf("the record went before what it stands for: %v %v", r, err)
			}
			h.set(func() { delete(h.fail, step) })
			if err := c.RemovePod(ctx, id); err != nil {
				t.Fatal(err)
			}
			if left := h.left(); len(left) > 0 {
				t.Fatal(left)
			}
		})
	}
}

func TestRestart(t *testing.T) {
	h, d := newHost(), newDisk()
	c, kill := boot(t, h, d)
	lives, livesCtr := started(t, c, "lives")
	_, died := started(t, c, "died")
	_, lost := started(t, c, "lost")
	half, _ := started(t, c, "half")
	h.set(func() { h.fail["net.detach"] = errBoom })
	if err := c.StopPod(ctx, half); err == nil {
		t.Fatal("stop should have failed")
	}
	kill()
	h.set(func() {
		delete(h.fail, "net.detach")
		h.procs[string(died)].alive = false
		h.procs[string(died)].exit = &pod.Exit{Code: 7, FinishedAt: time.Unix(7, 7)}
		delete(h.procs, string(lost))
	})
	c, _ = boot(t, h, d)
	if err := c.book.await(ctx, lives); err != nil {
		t.Fatal(err)
	}
	if got := state(t, c, livesCtr); got.State != pod.Running {
		t.Errorf("alive: %+v", got)
	}
	eventually(t, "exits are known", func() bool {
		return state(t, c, died).State == pod.Exited && state(t, c, lost).State == pod.Exited
	})
	if got := state(t, c, died); got.ExitCode != 7 || !got.FinishedAt.Equal(time.Unix(7, 7)) {
		t.Errorf("died: %+v", got)
	}
	if got := state(t, c, lost); got.Reason != reasonUnknown || got.ExitCode != codeLost {
		t.Errorf("lost: %+v", got)
	}
	eventually(t, "the stop that was cut off is completed", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return !h.things["net "+string(half)]
	})
}

// TestCrashLeavesIntent writes the records that a crash can leave and checks
// what recovery makes of them.
func TestCrashLeavesIntent(t *testing.T) {
	h, d := newHost(), newDisk()
	c, kill := boot(t, h, d)
	id, ctr := started(t, c, "web")
	made, err := c.CreateContainer(ctx, id, containerConfig("half"))
	if err != nil {
		t.Fatal(err)
	}
	ran, err := c.CreateContainer(ctx, id, containerConfig("ran"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.RunPod(ctx, podConfig("other"), "")
	if err != nil {
		t.Fatal(err)
	}
	rewind := func(r *pod.Record) error {
		if r.ID == other {
			r.State = pod.Creating
			return nil
		}
		r.Container(made).State = pod.Creating
		return nil
	}
	for _, id := range []pod.ID{id, other} {
		if _, err := c.book.change(ctx, id, rewind); err != nil {
			t.Fatal(err)
		}
	}
	kill()
	h.set(func() { // the runtime ran it, the commit never came
		h.procs[string(ran)] = &proc{alive: true, running: pod.RunningProcess{PID: 42, StartTime: 4}}
	})
	c, _ = boot(t, h, d)
	if err := errors.Join(c.book.await(ctx, id), c.book.await(ctx, other)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.FindContainer(string(made)); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("half-made container: %v", err)
	}
	if _, err := c.FindPod(string(other)); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("half-made pod: %v", err)
	}
	if got := state(t, c, ran); got.State != pod.Running || got.Process.PID != 42 {
		t.Errorf("half-started container: %+v", got)
	}
	if state(t, c, ctr).State != pod.Running {
		t.Error("the running container was touched")
	}
	if err := c.RemovePod(ctx, id); err != nil {
		t.Fatal(err)
	}
	if left := h.left(); len(left) > 0 {
		t.Fatal(left)
	}
}

func TestWhatCannotBeSeenIsUnknownAndKept(t *testing.T) {
	h, d := newHost(), newDisk()
	c, kill := boot(t, h, d)
	id, ctr := started(t, c, "web")
	kill()
	h.set(func() { h.fail["observe"], h.fail["sandbox.observe"] = errBoom, errBoom })
	c, kill = boot(t, h, d)
	if err := c.book.await(ctx, id); err != nil {
		t.Fatal(err)
	}
	r, _ := c.FindPod(string(id))
	if r.State != pod.Unknown || r.Reason == "" || state(t, c, ctr).State != pod.Unknown {
		t.Fatalf("%+v", r)
	}
	found := func() bool {
		r, err := c.FindPod(string(id))
		return err == nil && r.State == pod.Running && state(t, c, ctr).State == pod.Running
	}
	// It is found again by the same daemon, and by the next one.
	h.set(func() { clear(h.fail) })
	eventually(t, "the same daemon finds it again", found)
	kill()
	h.set(func() { h.fail["observe"], h.fail["sandbox.observe"] = errBoom, errBoom })
	c, kill = boot(t, h, d)
	if err := c.book.await(ctx, id); err != nil {
		t.Fatal(err)
	}
	kill()
	h.set(func() { clear(h.fail) })
	c, _ = boot(t, h, d)
	if err := c.book.await(ctx, id); err != nil {
		t.Fatal(err)
	}
	if !found() {
		t.Fatal("the next daemon does not find it again")
	}
	if len(h.left()) == 0 {
		t.Fatal("a failed look deleted something")
	}
}

func TestPauseEndMakesThePodNotReady(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	cfg := podConfig("shared")
	cfg.Security.Namespaces.PID = pod.NamespacePod
	id, err := c.RunPod(ctx, cfg, "")
	if err != nil {
		t.Fatal(err)
	}
	if r, _ := c.FindPod(string(id)); r.Sandbox.Pause == nil || r.Sandbox.PIDNS == "" {
		t.Fatalf("%+v", r.Sandbox)
	}
	h.die(string(id), pod.Exit{Code: 137})
	eventually(t, "not ready", func() bool { r, _ := c.FindPod(string(id)); return r.State == pod.Exited })
	if err := c.RemovePod(ctx, id); err != nil {
		t.Fatal(err)
	}
	if left := h.left(); len(left) > 0 {
		t.Fatal(left)
	}
}

func TestFindByPrefix(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	a, ctr := started(t, c, "a")
	if r, err := c.FindPod(a.Short()); err != nil || r.ID != a {
		t.Error(r, err)
	}
	if _, got, err := c.FindContainer(ctr.Short()); err != nil || got.ID != ctr {
		t.Error(got, err)
	}
	for _, id := range []string{"", "zz", strings.Repeat("f", 5000)} {
		if _, err := c.FindPod(id); !errors.Is(err, errdefs.ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestResizePod(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	id, _ := started(t, c, "web")
	if err := c.ResizePod(ctx, id, &pod.Resources{MemoryLimit: 5}, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.ResizePod(ctx, id, nil, &pod.Resources{MemoryLimit: 1}); err != nil {
		t.Fatal(err)
	}
	has := func() (int64, int64) {
		r, err := c.FindPod(string(id))
		if err != nil {
			t.Fatal(err)
		}
		return r.Config.Resources.MemoryLimit, r.Config.Overhead.MemoryLimit
	}
	if of, over := has(); of != 5 || over != 1 || h.limit != 5 || h.count("sandbox.resize") != 2 {
		t.Fatalf("%d and %d are recorded, %d is in force: %v", of, over, h.limit, h.calls)
	}
	h.set(func() { h.once = map[string]error{"sandbox.resize": errBoom} })
	if err := c.ResizePod(ctx, id, &pod.Resources{MemoryLimit: 9}, nil); !errors.Is(err, errBoom) {
		t.Fatal(err)
	}
	if of, _ := has(); of != 5 || h.limit != 5 {
		t.Fatalf("after a failure %d is recorded and %d is in force", of, h.limit)
	}
	if err := c.StopPod(ctx, id); err != nil {
		t.Fatal(err)
	}
	if err := c.ResizePod(ctx, id, &pod.Resources{MemoryLimit: 9}, nil); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Fatal(err)
	}
	if err := c.ResizePod(ctx, "none", nil, nil); !errors.Is(err, errdefs.ErrNotFound) {
		t.Fatal(err)
	}
}

func TestUpdateMergesAndReachesTheRightPlace(t *testing.T) {
	h := newHost()
	c, _ := boot(t, h, newDisk())
	id, ctr := started(t, c, "web")
	if err := c.UpdateContainer(ctx, ctr, &pod.Resources{CPUShares: 5}); err != nil {
		t.Fatal(err)
	}
	if err := c.UpdateContainer(ctx, ctr, &pod.Resources{MemoryLimit: 6}); err != nil {
		t.Fatal(err)
	}
	if got := state(t, c, ctr).Config.Resources; got.CPUShares != 5 || got.MemoryLimit != 6 {
		t.Fatalf("%+v", got)
	}
	created, err := c.CreateContainer(ctx, id, containerConfig("later"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.UpdateContainer(ctx, created, &pod.Resources{CPUShares: 7}); err != nil {
		t.Fatal(err)
	}
	if h.count("update") != 2 || h.count("bundle.update") != 3 {
		t.Fatal(h.calls)
	}
	h.set(func() { h.fail["update"] = errBoom })
	if err := c.UpdateContainer(ctx, ctr, &pod.Resources{MemoryLimit: 9}); !errors.Is(err, errBoom) {
		t.Fatal(err)
	}
	if h.limit != 6 || state(t, c, ctr).Config.Resources.MemoryLimit != 6 {
		t.Fatalf("the runtime refused, and the bundle says %d", h.limit)
	}
}

// After a reboot the records are gone, and writable layers, addresses and the
// like are still on the disk.
func TestRebootReleasesWhatTheLastBootHeld(t *testing.T) {
	h := newHost()
	c, kill := boot(t, h, newDisk())
	id, ctr := started(t, c, "web")
	kill()
	h.set(func() { delete(h.things, "sandbox "+string(id)) }) // it was on the tmpfs
	boot(t, h, newDisk())
	eventually(t, "the writable layer and the address are released", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return !h.things["root "+string(ctr)] && !h.things["net "+string(id)]
	})
}
