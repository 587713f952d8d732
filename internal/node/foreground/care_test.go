package foreground

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"fairlead.run/internal/node/fakeruntime"
	"fairlead.run/internal/node/removal"
)

const hooks = "lifecycle: {postStart: {exec: {command: [post]}}, preStop: {exec: {command: [pre]}}}"

// TestHooksInOrder is the figure of a container's life: create, start, postStart, preStop,
// stop. What comes after the container in the spec waits for its postStart hook, and the
// start of the run does, too.
func TestHooksInOrder(t *testing.T) {
	fake, goOn := fakeruntime.New(), make(chan struct{})
	fake.OnExec(func(ctx context.Context, _ string, command []string) (int32, error) {
		if command[0] == "post" {
			<-goOn
		}
		return 0, ctx.Err()
	})
	s := newStage(t, fake, strings.Replace(cared("a", "Always", hooks, ""), "---\n", "  - {name: second, image: 'i:1', args: [run]}\n---\n", 1))
	started := make(chan error, 1)
	go func() { started <- s.Start(t.Context(), s.plans) }()
	await(t, "what it waits for", func() bool { return s.seen.saw("container main: its postStart hook runs") })
	await(t, "the hook", func() bool { return fake.Of("a/main") == "create, start, exec post" })
	if got := fake.Of("a/second"); got != "" {
		t.Errorf("the second container did not wait: %s", got)
	}
	select {
	case err := <-started:
		t.Fatalf("the pod has started before its hook has ended: %v", err)
	default:
	}
	close(goOn)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	await(t, "readiness", func() bool {
		got := s.Statuses()[0]
		return got.Phase == Running && got.Ready == 2 && got.Message == ""
	})
	s.end(t)
	if got := fake.Of("a/main"); got != "create, start, exec post, exec pre, stop in 30s" {
		t.Error(got)
	}
	if got := fake.Of("a/second"); got != "create, start, stop in 30s" {
		t.Error(got)
	}
}

// TestPostStartFails wants the container ended, and what its policy says.
func TestPostStartFails(t *testing.T) {
	for policy, want := range map[string]string{
		"Never":  "create, start, exec post, exec pre, stop in 30s",
		"Always": "create, start, exec post, exec pre, stop in 30s, create, start, exec post",
	} {
		fake := fakeruntime.New()
		var failed atomic.Bool
		fake.OnExec(func(_ context.Context, _ string, command []string) (int32, error) {
			if command[0] == "post" && !failed.Swap(true) {
				return 7, nil
			}
			return 0, nil
		})
		s := newStage(t, fake, cared("a", policy, hooks, ""))
		stop := s.runs(t)
		await(t, policy, func() bool { return strings.HasPrefix(fake.Of("a/main"), want) })
		if policy == "Never" {
			await(t, "the end", func() bool { return s.Statuses()[0].Phase == Failed })
			if m := s.Statuses()[0].Message; m != "container main ended with exit code 143, as its postStart hook failed: the command ended with exit code 7" {
				t.Errorf("message %q", m)
			}
		} else {
			await(t, "the second attempt", func() bool { got := s.Statuses()[0]; return got.Ready == 1 && got.Restarts == 1 })
		}
		if !s.seen.noted("pod default/a: container main is ended: its postStart hook failed: the command ended with exit code 7") {
			t.Errorf("%s: notes %q", policy, s.seen.notes)
		}
		stop()
	}
}

// TestPostStartOfWhatEnds has a container that ends while its hook runs: neither has failed
// for the other's sake.
func TestPostStartOfWhatEnds(t *testing.T) {
	fake := fakeruntime.New()
	fake.OnExec(func(_ context.Context, name string, _ []string) (int32, error) {
		fake.Exit(name, 3)
		return 137, nil
	})
	s := newStage(t, fake, cared("a", "Never", hooks, ""))
	stop := s.runs(t)
	await(t, "the end", func() bool { return s.Statuses()[0].Phase == Failed })
	if m := s.Statuses()[0].Message; m != "container main ended with exit code 3" {
		t.Errorf("message %q", m)
	}
	stop()
	if got := fake.Of("a/main"); got != "create, start, exec post" {
		t.Errorf("a container that has ended by itself was warned: %s", got)
	}
}

// hangs is a command that ends when it is told to.
func hangs(ctx context.Context, _ string, _ []string) (int32, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// TestEndlessPostStart is ended with its pod.
func TestEndlessPostStart(t *testing.T) {
	fake := fakeruntime.New()
	fake.OnExec(hangs)
	s := newStage(t, fake, cared("a", "Always", "lifecycle: {postStart: {exec: {command: [post]}}}", "")+manifestOf("b", "Always", "other: run"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx, s.plans) }()
	await(t, "the hook", func() bool { return fake.Of("a/main") == "create, start, exec post" })
	await(t, "the other pod", func() bool { return fake.Of("b/other") == "create, start" })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.wantNothing(t)
}

// TestPreStopInGrace wants the hook within the grace period, and what is left of that for
// the container: two seconds at least.
func TestPreStopInGrace(t *testing.T) {
	for name, tt := range map[string]struct {
		grace string
		hangs bool
		want  string
		note  string
	}{
		"it ends":               {"77", false, "create, start, exec pre, stop in 77s", ""},
		"it takes all":          {"1", true, "create, start, exec pre, stop in 2s", "container main: its preStop hook failed: it did not end in time, and was given up"},
		"there is no time at 0": {"0", false, "create, start, stop in 0s", ""},
	} {
		fake := fakeruntime.New()
		if tt.hangs {
			fake.OnExec(hangs)
		}
		s := newStage(t, fake, cared("a", "Always", "lifecycle: {preStop: {exec: {command: [pre]}}}", "  terminationGracePeriodSeconds: "+tt.grace+"\n"))
		if err := s.Start(t.Context(), s.plans); err != nil {
			t.Fatal(err)
		}
		s.end(t)
		if got := fake.Of("a/main"); got != tt.want {
			t.Errorf("%s: %s", name, got)
		}
		if tt.note != "" != s.seen.noted("preStop") || !s.seen.noted(tt.note) && tt.note != "" {
			t.Errorf("%s: notes %q", name, s.seen.notes)
		}
	}
}

// TestPreStopIsCut ends a hook that takes too long for somebody.
func TestPreStopIsCut(t *testing.T) {
	fake := fakeruntime.New()
	fake.OnExec(hangs)
	s := newStage(t, fake, cared("a", "Always", "lifecycle: {preStop: {exec: {command: [pre]}}}", "  terminationGracePeriodSeconds: 3600\n"))
	if err := s.Start(t.Context(), s.plans); err != nil {
		t.Fatal(err)
	}
	now := make(chan struct{})
	go func() {
		await(t, "the hook", func() bool { return strings.HasSuffix(fake.Of("a/main"), "exec pre") })
		close(now)
	}()
	if err := s.Stop(t.Context(), now); err != nil {
		t.Error(err)
	}
	if got := fake.Of("a/main"); got != "create, start, exec pre, stop in 0s" {
		t.Error(got)
	}
	s.wantNothing(t)
}

// TestSidecarsAreWarned wants the hooks of sidecars begun with the end of the pod, and their
// own end after that of the others.
func TestSidecarsAreWarned(t *testing.T) {
	fake, warned := fakeruntime.New(), make(chan struct{})
	fake.OnExec(func(ctx context.Context, name string, _ []string) (int32, error) {
		if name == "a/side1" {
			close(warned)
			return 0, nil
		}
		select { // that of the main container ends after that of the sidecar has begun
		case <-warned:
		case <-ctx.Done():
		}
		return 0, ctx.Err()
	})
	side := "{name: side1, image: 'i:1', args: [run], restartPolicy: Always, lifecycle: {preStop: {exec: {command: [pre]}}}}"
	s := newStage(t, fake, withInit(cared("a", "Always", "lifecycle: {preStop: {exec: {command: [pre]}}}", ""), side))
	if err := s.Start(t.Context(), s.plans); err != nil {
		t.Fatal(err)
	}
	s.end(t)
	if got := fake.Calls("stop a/"); len(got) != 2 || !strings.HasPrefix(got[0], "stop a/main") || s.seen.noted("preStop") {
		t.Errorf("stopped %q, notes %q", got, s.seen.notes)
	}
	if got := fake.Of("a/side1"); !strings.HasPrefix(got, "create, start, exec pre, stop in ") {
		t.Error(got)
	}
}

// TestLiveness wants a container that fails its probe ended with the grace period of the
// probe, and restarted.
func TestLiveness(t *testing.T) {
	fake := fakeruntime.New()
	var asked atomic.Int32
	fake.OnExec(func(context.Context, string, []string) (int32, error) {
		if n := asked.Add(1); n == 2 || n == 3 {
			return 1, nil
		}
		return 0, nil
	})
	probe := "env: [{name: FILE, value: up}], livenessProbe: {exec: {command: [test, $(FILE)]}, periodSeconds: 1, failureThreshold: 2, terminationGracePeriodSeconds: 9}"
	s := newStage(t, fake, cared("a", "Always", probe, ""))
	stop := s.runs(t)
	await(t, "the restart", func() bool { return s.Statuses()[0].Restarts == 1 && asked.Load() >= 4 })
	stop()
	const tried = "exec test up, "
	if got := fake.Of("a/main"); !strings.HasPrefix(got, "create, start, "+tried+tried+tried+"stop in 9s, create, start, "+tried) || !strings.HasSuffix(got, "stop in 30s") {
		t.Error(got)
	}
	for _, want := range []string{
		"container main is ended: its liveness probe failed 2 times in a row: the command ended with exit code 1",
		"container main ended with exit code 143, as its liveness probe failed 2 times in a row: the command ended with exit code 1; restarting it",
	} {
		if !s.seen.noted(want) {
			t.Errorf("notes %q lack %q", s.seen.notes, want)
		}
	}
}

// TestReadiness wants a container that does not pass its probe shown so, and left alone.
func TestReadiness(t *testing.T) {
	fake := fakeruntime.New()
	var code atomic.Int32
	code.Store(1)
	fake.OnExec(func(context.Context, string, []string) (int32, error) { return code.Load(), nil })
	s := newStage(t, fake, cared("a", "Always", "readinessProbe: {exec: {command: [test]}, periodSeconds: 1, failureThreshold: 1}", ""))
	stop := s.runs(t)
	const why = "container main: its readiness probe fails: the command ended with exit code 1"
	is := func(ready int, message string) func() bool {
		return func() bool {
			got := s.Statuses()[0]
			return got.Phase == Running && got.Ready == ready && got.Message == message
		}
	}
	await(t, "what fails", is(0, why))
	code.Store(0)
	await(t, "readiness", is(1, ""))
	code.Store(1)
	await(t, "its loss", is(0, why))
	stop()
	if s.starts("a/main") != 1 {
		t.Error("it was restarted")
	}
}

// TestStartupGates wants what comes after a sidecar to wait for its startup probe.
func TestStartupGates(t *testing.T) {
	fake := fakeruntime.New()
	var passes atomic.Bool
	fake.OnExec(func(_ context.Context, _ string, command []string) (int32, error) {
		if command[0] == "up" && !passes.Load() {
			return 1, nil
		}
		return 0, nil
	})
	side := "{name: side1, image: 'i:1', args: [run], restartPolicy: Always, startupProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 1000}, livenessProbe: {exec: {command: [lives]}}}"
	s := newStage(t, fake, withInit(manifestOf("a", "Always", "main: run"), side, "{name: init, image: 'i:1', args: [exit 0]}"))
	started := make(chan error, 1)
	go func() { started <- s.Start(t.Context(), s.plans) }()
	await(t, "what it waits for", func() bool {
		return s.seen.saw("container side1: its startup probe fails: the command ended with exit code 1")
	})
	if got := fake.Of("a/init") + fake.Of("a/main"); got != "" || strings.Contains(fake.Of("a/side1"), "lives") {
		t.Errorf("they did not wait: %s, %s", got, fake.Of("a/side1"))
	}
	passes.Store(true)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	s.end(t)
}

// TestPreStopOfOthers stops a pod whose manifest nobody has any more.
func TestPreStopOfOthers(t *testing.T) {
	fake := fakeruntime.New()
	fake.OnExec(func(context.Context, string, []string) (int32, error) { return 4, nil })
	s := newStage(t, fake, cared("a", "Always", "lifecycle: {preStop: {exec: {command: [pre, '$(X)']}}}", ""))
	if err := s.Start(t.Context(), s.plans); err != nil {
		t.Fatal(err)
	}
	s.Leave()
	var notes []string
	how := removal.Pod{ID: fake.Sandboxes()[0].Id, By: removal.In(50), Note: func(text string) { notes = append(notes, text) }}
	if err := removal.StopPod(t.Context(), fake, how); err != nil {
		t.Error(err)
	}
	if got := fake.Of("a/main"); got != "create, start, exec pre $(X), stop in 50s" {
		t.Error(got)
	}
	if !slices.Equal(notes, []string{"container main: its preStop hook failed: the command ended with exit code 4"}) {
		t.Errorf("notes %q", notes)
	}
	if err := removal.RemovePod(t.Context(), fake, how); err != nil { // of what has ended
		t.Error(err)
	}
	if got := fake.Of("a/main"); strings.Count(got, "exec") != 1 {
		t.Error(got)
	}
}
