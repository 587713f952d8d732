package lifecycle

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
)

func (f fakeHandler) Freeze(_ context.Context, id string) error {
	return f.make("freeze", "frozen "+id)
}

func (f fakeHandler) Thaw(_ context.Context, id string) error { return f.drop("thaw", "frozen "+id) }

// Capture waits where it is held, until ctx ends.
func (f fakeHandler) Capture(ctx context.Context, c *pod.Container, to string) error {
	f.mu.Lock()
	f.calls["capture"]++
	hold, err, frozen := f.hold["capturing"], f.fail["capture"], f.things["frozen "+string(c.ID)]
	f.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if !frozen {
		return errors.New("it is not frozen")
	}
	return errors.Join(err, os.WriteFile(filepath.Join(to, "captured"), nil, 0o600))
}

func (f fakeRoots) Images(id pod.ContainerID) string { return "/images/" + string(id) }
func (f fakeRoots) Restore(context.Context, pod.ContainerID, string) error {
	return f.step("root.restore")
}

func (f fakeRoots) Diff(context.Context, pod.ContainerID, string) error { return f.step("root.diff") }

// fakeCheckpoints has folders that outlive the core.
type fakeCheckpoints struct {
	*host
	base string
}

func (f fakeCheckpoints) dir(id pod.ContainerID) string { return filepath.Join(f.base, string(id)) }
func (f fakeCheckpoints) Make(id pod.ContainerID) (string, error) {
	return f.dir(id), errors.Join(os.MkdirAll(f.dir(id), 0o700), f.step("checkpoint.make"))
}
func (f fakeCheckpoints) Remove(id pod.ContainerID) error { return os.RemoveAll(f.dir(id)) }
func (f fakeCheckpoints) Left() (out []pod.ContainerID, err error) {
	entries, err := os.ReadDir(f.base)
	for _, e := range entries {
		out = append(out, pod.ContainerID(e.Name()))
	}
	return out, err
}

func (f fakeCheckpoints) EndWriters(context.Context, pod.ContainerID) error {
	return f.step("checkpoint.end-writers")
}

func (f fakeCheckpoints) Describe(dir string, _ *pod.Record, _ *pod.Container, more map[string][]byte) error {
	for name, data := range more {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return f.step("checkpoint.describe")
}

func (f fakeCheckpoints) Read(context.Context, string) ([]pod.Captured, error) {
	return []pod.Captured{{Name: "a", Dir: "/from/a"}, {Name: "b", Dir: "/from/b"}}, f.step("checkpoint.read")
}

func (f fakeCheckpoints) Fits(dir, bundle string) error {
	return f.step("checkpoint.fits " + dir + " " + bundle)
}

// Export wants the container to go on by then.
func (f fakeCheckpoints) Export(_ context.Context, dir, to string) error {
	if f.has("frozen " + filepath.Base(dir)) {
		return errors.New("the archive is written while the container is frozen")
	}
	if err := f.step("checkpoint.export"); err != nil {
		return err
	}
	return os.WriteFile(to, nil, 0o600)
}

// studio is a core that makes checkpoints, with a container that runs.
type studio struct {
	*Core
	h    *host
	kept fakeCheckpoints
	disk *disk
	kill func()
	pod  pod.ID
	id   pod.ContainerID
	dir  string // for checkpoints
}

func newStudio(t *testing.T) *studio {
	t.Helper()
	h := newHost()
	s := &studio{h: h, kept: fakeCheckpoints{h, t.TempDir()}, disk: newDisk(), dir: t.TempDir()}
	h.able, h.kept = true, s.kept
	s.Core, s.kill = boot(t, h, s.disk)
	s.pod, s.id = started(t, s.Core, "web")
	return s
}

func (s *studio) request() pod.Checkpoint {
	return pod.Checkpoint{Location: filepath.Join(s.dir, "c.tar")}
}

// goesOn fails if a container is frozen or anything but want is left.
func (s *studio) goesOn(t *testing.T, want ...string) {
	t.Helper()
	for _, left := range s.h.left() {
		if strings.HasPrefix(left, "frozen ") {
			t.Errorf("left: %s", left)
		}
	}
	if left, err := s.kept.Left(); err != nil || len(left) > 0 {
		t.Errorf("folders are left: %v %v", left, err)
	}
	var found []string
	entries, err := os.ReadDir(s.dir)
	for _, e := range entries {
		found = append(found, e.Name())
	}
	if err != nil || !slices.Equal(found, want) {
		t.Errorf("the folder has %q %v, want %q", found, err, want)
	}
}

func TestCheckpointContainer(t *testing.T) {
	s := newStudio(t)
	if err := s.CheckpointContainer(ctx, s.id, s.request()); err != nil {
		t.Fatal(err)
	}
	s.goesOn(t, "c.tar")
	if err := s.CheckpointContainer(ctx, s.id, s.request()); !errors.Is(err, errdefs.ErrAlreadyExists) || s.h.count("freeze") != 1 {
		t.Errorf("onto another checkpoint: %v, frozen %d times", err, s.h.count("freeze"))
	}
	if got := state(t, s.Core, s.id); got.State != pod.Running {
		t.Errorf("%+v", got)
	}
}

// Whatever fails, the container goes on and nothing is left.
func TestFailedCheckpointLeavesNothing(t *testing.T) {
	for _, step := range []string{"checkpoint.make", "freeze", "capture", "root.diff", "checkpoint.describe", "checkpoint.export"} {
		t.Run(step, func(t *testing.T) {
			s := newStudio(t)
			s.h.set(func() { s.h.fail[step] = errBoom })
			if err := s.CheckpointContainer(ctx, s.id, s.request()); !errors.Is(err, errBoom) || !strings.Contains(err.Error(), "checkpoint container default/web/main") {
				t.Errorf("%v", err)
			}
			s.goesOn(t)
		})
	}
}

func TestCheckpointsThatAreRefused(t *testing.T) {
	s := newStudio(t)
	for name, tt := range map[string]struct {
		change func(*pod.Checkpoint)
		want   error
	}{
		"no folder":    {func(q *pod.Checkpoint) { q.Location = filepath.Join(s.dir, "none", "c.tar") }, errdefs.ErrInvalidArgument},
		"not a folder": {func(q *pod.Checkpoint) { q.Location = "/proc/version/c.tar" }, errdefs.ErrInvalidArgument},
		"not able":     {func(*pod.Checkpoint) { s.h.able = false }, errdefs.ErrUnimplemented},
	} {
		t.Run(name, func(t *testing.T) {
			defer s.h.set(func() { s.h.able = true })
			q := s.request()
			s.h.set(func() { tt.change(&q) })
			if err := s.CheckpointContainer(ctx, s.id, q); !errors.Is(err, tt.want) {
				t.Errorf("%v", err)
			}
		})
	}
	created, err := s.CreateContainer(ctx, s.pod, containerConfig("created"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CheckpointContainer(ctx, created, s.request()); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Errorf("of a container that does not run: %v", err)
	}
	if err := s.CheckpointContainer(ctx, "none", s.request()); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("of no container: %v", err)
	}
	if n := s.h.count("freeze"); n > 0 {
		t.Errorf("something was frozen %d times", n)
	}
	s.goesOn(t)
}

// The time that the caller allows ends the capture, and not only its wait.
func TestCheckpointInTime(t *testing.T) {
	s := newStudio(t)
	defer hold(s.h, "capturing")()
	q := s.request()
	q.Timeout = 20 * time.Millisecond
	if err := s.CheckpointContainer(ctx, s.id, q); !errors.Is(err, errdefs.ErrDeadline) || !strings.Contains(err.Error(), "within 20ms") {
		t.Errorf("%v", err)
	}
	s.goesOn(t)
}

func TestCheckpointLimit(t *testing.T) {
	soon, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, tt := range []struct {
		ctx         context.Context
		asked       time.Duration
		least, most time.Duration
	}{
		{ctx, 0, checkpointTimeout, checkpointTimeout},
		{ctx, time.Hour, time.Hour, time.Hour},
		{soon, 0, 30 * time.Second, 58 * time.Second},
		{soon, time.Second, time.Second, time.Second},
	} {
		if got := checkpointLimit(tt.ctx, tt.asked); got < tt.least || got > tt.most {
			t.Errorf("asked for %s: %s", tt.asked, got)
		}
	}
}

// Nobody waits for a checkpoint in order to stop a container: it would not die
// while it is frozen.
func TestStopEndsACheckpoint(t *testing.T) {
	for name, stop := range map[string]func(*studio) error{
		"container":        func(s *studio) error { return s.StopContainer(ctx, s.id, time.Minute) },
		"pod":              func(s *studio) error { return s.StopPod(ctx, s.pod) },
		"remove container": func(s *studio) error { return s.RemoveContainer(ctx, s.id) },
	} {
		for kind, begin := range map[string]func(*studio) error{
			"of the container": func(s *studio) error { return s.CheckpointContainer(ctx, s.id, s.request()) },
			"of the pod": func(s *studio) error {
				return s.CheckpointPod(ctx, s.pod, pod.PodCheckpoint{Location: s.dir, Containers: []pod.ContainerID{s.id}})
			},
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				s := newStudio(t)
				defer hold(s.h, "capturing")()
				done := make(chan error, 1)
				go func() { done <- begin(s) }()
				eventually(t, "the capture", func() bool { return s.h.count("capture") == 1 })
				if err := stop(s); err != nil {
					t.Error(err)
				}
				if err := <-done; !errors.Is(err, errdefs.ErrPrecondition) || !strings.Contains(err.Error(), "being stopped") {
					t.Errorf("%v", err)
				}
				s.goesOn(t)
			})
		}
	}
}

// The same request joins the one in flight, and another one has to wait.
func TestCheckpointsJoin(t *testing.T) {
	s := newStudio(t)
	release := hold(s.h, "capturing")
	done := make(chan error, 2)
	for range 2 {
		go func() { done <- s.CheckpointContainer(ctx, s.id, s.request()) }()
	}
	eventually(t, "both wait", func() bool {
		list := s.Operations()
		return len(list) == 1 && list[0].Verb == ops.Checkpoint && list[0].Waiting == 2 && s.h.count("capture") == 1
	})
	other := s.request()
	other.Location += ".other"
	if err := s.CheckpointContainer(ctx, s.id, other); !errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Errorf("another one at the same time: %v", err)
	}
	release()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := s.h.count("capture"); n != 1 {
		t.Errorf("captured %d times", n)
	}
	s.goesOn(t, "c.tar")
}

// What could not be thawed is tried again until it goes on.
func TestThawIsTriedAgain(t *testing.T) {
	s := newStudio(t)
	s.h.set(func() { s.h.fail["thaw"] = errBoom })
	err := s.CheckpointContainer(ctx, s.id, s.request())
	if !errors.Is(err, errStillFrozen) || !errors.Is(err, errBoom) {
		t.Fatalf("%v", err)
	}
	if left, _ := s.kept.Left(); len(left) != 1 {
		t.Errorf("nothing says that it is frozen: %v", left)
	}
	s.h.set(func() { delete(s.h.fail, "thaw") })
	eventually(t, "the thaw", func() bool {
		left, _ := s.kept.Left()
		return len(left) == 0 && !s.h.has("frozen "+string(s.id))
	})
	s.goesOn(t)
}

// A daemon that dies leaves containers frozen, which the next one lets go on.
func TestRecoveryThaws(t *testing.T) {
	h, d := newHost(), newDisk()
	kept := fakeCheckpoints{h, t.TempDir()}
	h.able, h.kept = true, kept
	c, kill := boot(t, h, d)
	id, ctr := started(t, c, "web")
	kill()
	for _, folder := range []pod.ContainerID{ctr, pod.NewContainerID()} {
		if _, err := kept.Make(folder); err != nil {
			t.Fatal(err)
		}
	}
	h.set(func() { h.things["frozen "+string(ctr)] = true; h.fail["checkpoint.end-writers"] = errBoom })
	c, _ = boot(t, h, d)
	eventually(t, "the first try", func() bool { return h.count("checkpoint.end-writers") >= 2 })
	if !h.has("frozen " + string(ctr)) {
		t.Error("it was thawed while somebody may freeze it again")
	}
	h.set(func() { delete(h.fail, "checkpoint.end-writers") })
	eventually(t, "the thaw", func() bool {
		left, _ := kept.Left()
		return len(left) == 0 && !h.has("frozen "+string(ctr))
	})
	if err := c.RemovePod(ctx, id); err != nil {
		t.Error(err)
	}
}

func TestCheckpointPod(t *testing.T) {
	s := newStudio(t)
	second, err := s.CreateContainer(ctx, s.pod, containerConfig("second"))
	if err != nil {
		t.Fatal(err)
	}
	both := []pod.ContainerID{s.id, second}
	ask := func(ids ...pod.ContainerID) error {
		return s.CheckpointPod(ctx, s.pod, pod.PodCheckpoint{
			Location: s.dir, Containers: ids, Files: map[string][]byte{"pod.dump": nil},
			ContainerFiles: map[pod.ContainerID]map[string][]byte{s.id: {"mine": nil}},
		})
	}
	if err := ask(both...); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Errorf("with a container that does not run: %v", err)
	}
	if err := s.StartContainer(ctx, second); err != nil {
		t.Fatal(err)
	}
	for name, ids := range map[string][]pod.ContainerID{"none": nil, "twice": {s.id, s.id}, "unknown": {s.id, "x"}} {
		if err := ask(ids...); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s.h.count("freeze") > 0 {
		t.Error("something was frozen for a request that is refused")
	}
	for _, step := range []string{"checkpoint.make", "freeze", "capture", "root.diff", "checkpoint.describe"} {
		s.h.set(func() { s.h.fail[step] = errBoom })
		if err := ask(both...); !errors.Is(err, errBoom) {
			t.Errorf("%s fails: %v", step, err)
		}
		s.h.set(func() { delete(s.h.fail, step) })
		s.goesOn(t)
	}
	// All are frozen before the first is captured.
	release, before := hold(s.h, "capturing"), s.h.count("capture")
	done := make(chan error, 1)
	go func() { done <- ask(both...) }()
	eventually(t, "the capture", func() bool { return s.h.count("capture") == before+1 })
	if !s.h.has("frozen "+string(s.id)) || !s.h.has("frozen "+string(second)) {
		t.Error("not all are frozen")
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s.goesOn(t, slices.Sorted(slices.Values([]string{string(s.id), string(second), "pod.dump"}))...)
	for _, name := range []string{"captured", "mine"} {
		if _, err := os.Stat(filepath.Join(s.dir, string(s.id), name)); err != nil {
			t.Error(err)
		}
	}
	if err := ask(both...); !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("into a folder that is not empty: %v", err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "pod.dump")); err != nil {
		t.Errorf("what was there is gone: %v", err)
	}
}
