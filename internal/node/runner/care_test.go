package runner

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/removal"
)

// cared makes a pod of one container that runs on, with more fields of its own and
// of the pod's.
func cared(name, policy, fields, podFields string) string {
	text := strings.Replace(pod(name, policy, "main: run"), "args: ['run']}", "args: ['run'], "+fields+"}", 1)
	return strings.Replace(text, "spec:\n", "spec:\n"+podFields, 1)
}

const hooks = "lifecycle: {postStart: {exec: {command: [post]}}, preStop: {exec: {command: [pre]}}}"

// await waits until something is so. The test's own deadline is the limit.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not come", what)
		}
	}
}

// runs starts a run's pods and watches over them in the background. The function
// ends both.
func (r *run) runs(t *testing.T) (stop func()) {
	t.Helper()
	if err := r.Start(t.Context(), r.plans); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, ErrPodFailed) {
			t.Error(err)
		}
		if err := r.Stop(t.Context(), nil); err != nil {
			t.Error(err)
		}
		if left := r.left(t); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}
}

func (r *run) noted(text string) bool {
	r.seen.mu.Lock()
	defer r.seen.mu.Unlock()
	return slices.ContainsFunc(r.seen.notes, func(n string) bool { return strings.Contains(n, text) })
}

// TestHooksInOrder is the figure of a container's life: create, start, postStart,
// preStop, stop, remove. What comes after the container in the spec waits for its
// postStart hook, and is told of nothing else.
func TestHooksInOrder(t *testing.T) {
	fake, goOn := newFake(), make(chan struct{})
	fake.exec = func(ctx context.Context, _ string, command []string) (int32, error) {
		if command[0] == "post" {
			<-goOn
		}
		return 0, ctx.Err()
	}
	text := strings.Replace(cared("a", "Always", hooks, ""), "---\n", "  - {name: second, image: 'i:1', args: [run]}\n---\n", 1)
	r := newRun(t, fake, text)
	started := make(chan error, 1)
	go func() { started <- r.Start(t.Context(), r.plans) }()
	await(t, "the hook", func() bool { return fake.did("main") == "create, start, exec post" })
	await(t, "what it waits for", func() bool {
		r.seen.mu.Lock()
		defer r.seen.mu.Unlock()
		return r.seen.last["a"].Message == "container main: its postStart hook runs"
	})
	if got := fake.did("second"); got != "" {
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
	if s := r.Statuses()[0]; s.Phase != Running || s.Ready != 2 || s.Message != "" {
		t.Errorf("%+v", s)
	}
	if err := r.Stop(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if got := fake.did("main"); got != "create, start, exec post, exec pre, stop, remove" {
		t.Error(got)
	}
	if got := fake.did("second"); got != "create, start, stop, remove" {
		t.Error(got)
	}
}

// TestPostStartFails wants the container ended, and what its policy says.
func TestPostStartFails(t *testing.T) {
	for policy, want := range map[string]string{
		"Never":  "create, start, exec post, exec pre, stop",
		"Always": "create, start, exec post, exec pre, stop, create, start, exec post",
	} {
		fake := newFake()
		var failed atomic.Bool
		fake.exec = func(_ context.Context, _ string, command []string) (int32, error) {
			if command[0] == "post" && !failed.Swap(true) {
				return 7, nil
			}
			return 0, nil
		}
		r := newRun(t, fake, cared("a", policy, hooks, ""))
		stop := r.runs(t)
		await(t, policy, func() bool { return strings.HasPrefix(strings.ReplaceAll(fake.did("main"), "remove, ", ""), want) })
		if policy == "Never" {
			await(t, "the end", func() bool { return r.Statuses()[0].Phase == Failed })
			if m := r.Statuses()[0].Message; m != "container main ended with exit code 143, as its postStart hook failed: the command ended with exit code 7" {
				t.Errorf("message %q", m)
			}
		} else {
			await(t, "the second attempt", func() bool { s := r.Statuses()[0]; return s.Ready == 1 && s.Restarts == 1 })
		}
		if !r.noted("pod default/a: container main is ended: its postStart hook failed: the command ended with exit code 7") {
			t.Errorf("%s: notes %q", policy, r.seen.notes)
		}
		stop()
	}
}

// TestPostStartOfWhatEnds has a container that ends while its hook runs: neither
// has failed for the other's sake.
func TestPostStartOfWhatEnds(t *testing.T) {
	fake := newFake()
	fake.exec = func(_ context.Context, name string, _ []string) (int32, error) {
		fake.mu.Lock()
		defer fake.mu.Unlock()
		for _, c := range fake.containers {
			c.state, c.code, c.ended = runtimeapi.ContainerState_CONTAINER_EXITED, 3, time.Now()
		}
		return 137, nil
	}
	r := newRun(t, fake, cared("a", "Never", hooks, ""))
	stop := r.runs(t)
	await(t, "the end", func() bool { return r.Statuses()[0].Phase == Failed })
	if m := r.Statuses()[0].Message; m != "container main ended with exit code 3" {
		t.Errorf("message %q", m)
	}
	stop()
	if got := fake.did("main"); got != "create, start, exec post, remove" {
		t.Errorf("a container that has ended by itself was warned: %s", got)
	}
}

// TestEndlessPostStart is ended with its pod.
func TestEndlessPostStart(t *testing.T) {
	fake := newFake()
	fake.exec = func(ctx context.Context, _ string, _ []string) (int32, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	r := newRun(t, fake, cared("a", "Always", "lifecycle: {postStart: {exec: {command: [post]}}}", "")+pod("b", "Always", "other: run"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Start(ctx, r.plans) }()
	await(t, "the hook", func() bool { return fake.did("main") == "create, start, exec post" })
	await(t, "the other pod", func() bool { return fake.did("other") == "create, start" })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if left := r.left(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestPreStopInGrace wants the hook within the grace period, and what is left of
// that for the container: two seconds at least.
func TestPreStopInGrace(t *testing.T) {
	for name, tt := range map[string]struct {
		grace string
		hangs bool
		stops []int64
		note  string
	}{
		"it ends":               {"77", false, []int64{77}, ""},
		"it takes all":          {"1", true, []int64{2}, "container main: its preStop hook failed: it did not end in time, and was given up"},
		"there is no time at 0": {"0", false, []int64{0}, ""},
	} {
		fake := newFake()
		fake.exec = func(ctx context.Context, _ string, _ []string) (int32, error) {
			if tt.hangs {
				<-ctx.Done()
			}
			return 0, ctx.Err()
		}
		r := newRun(t, fake, cared("a", "Always", "lifecycle: {preStop: {exec: {command: [pre]}}}", "  terminationGracePeriodSeconds: "+tt.grace+"\n"))
		if err := r.Start(t.Context(), r.plans); err != nil {
			t.Fatal(err)
		}
		if err := r.Stop(t.Context(), nil); err != nil {
			t.Error(err)
		}
		if !slices.Equal(fake.stops, tt.stops) {
			t.Errorf("%s: timeouts %v, want %v", name, fake.stops, tt.stops)
		}
		want := "create, start, exec pre, stop, remove"
		if tt.grace == "0" {
			want = "create, start, stop, remove"
		}
		if got := fake.did("main"); got != want {
			t.Errorf("%s: %s", name, got)
		}
		if tt.note != "" != r.noted("preStop") || !r.noted(tt.note) && tt.note != "" {
			t.Errorf("%s: notes %q", name, r.seen.notes)
		}
	}
}

// TestPreStopIsCut ends a hook that takes too long for somebody.
func TestPreStopIsCut(t *testing.T) {
	fake := newFake()
	fake.exec = func(ctx context.Context, _ string, _ []string) (int32, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	r := newRun(t, fake, cared("a", "Always", "lifecycle: {preStop: {exec: {command: [pre]}}}", "  terminationGracePeriodSeconds: 3600\n"))
	if err := r.Start(t.Context(), r.plans); err != nil {
		t.Fatal(err)
	}
	now := make(chan struct{})
	go func() {
		await(t, "the hook", func() bool { return strings.HasSuffix(fake.did("main"), "exec pre") })
		close(now)
	}()
	if err := r.Stop(t.Context(), now); err != nil {
		t.Error(err)
	}
	if !slices.Equal(fake.stops, []int64{0}) {
		t.Errorf("timeouts %v", fake.stops)
	}
	if left := r.left(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestNoPreStop is about a container that ends by itself before anybody sees it.
func TestNoPreStop(t *testing.T) {
	fake := newFake()
	r := newRun(t, fake, cared("a", "Always", "lifecycle: {preStop: {exec: {command: [pre]}}}", ""))
	if err := r.Start(t.Context(), r.plans); err != nil {
		t.Fatal(err)
	}
	fake.mu.Lock()
	for _, c := range fake.containers {
		c.state, c.ended = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now()
	}
	fake.mu.Unlock()
	if err := r.Stop(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if got := fake.did("main"); strings.Contains(got, "exec") || r.noted("preStop") {
		t.Errorf("%s, notes %q", got, r.seen.notes)
	}
}

// TestSidecarsAreWarned wants the hooks of sidecars begun with the end of the pod,
// and their own end after that of the others.
func TestSidecarsAreWarned(t *testing.T) {
	fake, warned := newFake(), make(chan struct{})
	fake.exec = func(ctx context.Context, name string, _ []string) (int32, error) {
		if name == "side1" {
			close(warned)
			return 0, nil
		}
		select { // that of the main container ends after that of the sidecar has begun
		case <-warned:
		case <-ctx.Done():
		}
		return 0, ctx.Err()
	}
	side := "{name: side1, image: 'i:1', args: [run], restartPolicy: Always, lifecycle: {preStop: {exec: {command: [pre]}}}}"
	r := newRun(t, fake, withInit(cared("a", "Always", "lifecycle: {preStop: {exec: {command: [pre]}}}", ""), side))
	if err := r.Start(t.Context(), r.plans); err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if !slices.Equal(fake.stopped, []string{"main", "side1"}) || r.noted("preStop") {
		t.Errorf("stopped %q, notes %q", fake.stopped, r.seen.notes)
	}
	if got := fake.did("side1"); got != "create, start, exec pre, stop, remove" {
		t.Error(got)
	}
}

// TestLiveness wants a container that fails its probe ended with the grace period of
// the probe, and restarted.
func TestLiveness(t *testing.T) {
	fake := newFake()
	var asked atomic.Int32
	fake.exec = func(context.Context, string, []string) (int32, error) {
		if n := asked.Add(1); n == 2 || n == 3 {
			return 1, nil
		}
		return 0, nil
	}
	probe := "env: [{name: FILE, value: up}], livenessProbe: {exec: {command: [test, $(FILE)]}, periodSeconds: 1, failureThreshold: 2, terminationGracePeriodSeconds: 9}"
	r := newRun(t, fake, cared("a", "Always", probe, ""))
	stop := r.runs(t)
	await(t, "the restart", func() bool { return r.Statuses()[0].Restarts == 1 && asked.Load() >= 4 })
	stop()
	if fake.stops[0] != 9 || fake.stops[1] != 30 {
		t.Errorf("timeouts %v", fake.stops)
	}
	const tried = "exec test up, "
	if got := strings.ReplaceAll(fake.did("main"), "remove, ", ""); !strings.HasPrefix(got, "create, start, "+tried+tried+tried+"stop, create, start, "+tried) {
		t.Error(got)
	}
	for _, want := range []string{
		"container main is ended: its liveness probe failed 2 times in a row: the command ended with exit code 1",
		"container main ended with exit code 143, as its liveness probe failed 2 times in a row: the command ended with exit code 1; restarting it",
	} {
		if !r.noted(want) {
			t.Errorf("notes %q lack %q", r.seen.notes, want)
		}
	}
}

// TestReadiness wants a container that does not pass its probe shown so, and left
// alone.
func TestReadiness(t *testing.T) {
	fake := newFake()
	var code atomic.Int32
	code.Store(1)
	fake.exec = func(context.Context, string, []string) (int32, error) { return code.Load(), nil }
	r := newRun(t, fake, cared("a", "Always", "readinessProbe: {exec: {command: [test]}, periodSeconds: 1, failureThreshold: 1}", ""))
	stop := r.runs(t)
	const why = "container main: its readiness probe fails: the command ended with exit code 1"
	await(t, "what fails", func() bool { s := r.Statuses()[0]; return s.Phase == Running && s.Ready == 0 && s.Message == why })
	code.Store(0)
	await(t, "readiness", func() bool { s := r.Statuses()[0]; return s.Ready == 1 && s.Message == "" })
	code.Store(1)
	await(t, "its loss", func() bool { s := r.Statuses()[0]; return s.Ready == 0 && s.Message == why })
	stop()
	if fake.started["main"] != 1 {
		t.Error("it was restarted")
	}
}

// TestStartupGates wants what comes after a sidecar to wait for its startup probe,
// and its other probes too.
func TestStartupGates(t *testing.T) {
	fake := newFake()
	var passes atomic.Bool
	fake.exec = func(_ context.Context, _ string, command []string) (int32, error) {
		if command[0] == "up" && !passes.Load() {
			return 1, nil
		}
		return 0, nil
	}
	side := "{name: side1, image: 'i:1', args: [run], restartPolicy: Always, startupProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 1000}, livenessProbe: {exec: {command: [lives]}}}"
	r := newRun(t, fake, withInit(pod("a", "Always", "main: run"), side, "{name: init, image: 'i:1', args: [exit 0]}"))
	started := make(chan error, 1)
	go func() { started <- r.Start(t.Context(), r.plans) }()
	await(t, "what it waits for", func() bool {
		r.seen.mu.Lock()
		defer r.seen.mu.Unlock()
		return r.seen.last["a"].Message == "container side1: its startup probe fails: the command ended with exit code 1"
	})
	if got := fake.did("init") + fake.did("main"); got != "" || strings.Contains(fake.did("side1"), "lives") {
		t.Errorf("they did not wait: %s, %s", got, fake.did("side1"))
	}
	passes.Store(true)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	await(t, "the liveness probe", func() bool { return strings.Contains(fake.did("side1"), "exec lives") })
	if err := r.Stop(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestOnePodDelaysNoOther has a pod that takes an hour to end a container, and one
// that is restarted meanwhile.
func TestOnePodDelaysNoOther(t *testing.T) {
	fake := newFake()
	fake.stubborn = true
	fake.exec = func(ctx context.Context, name string, _ []string) (int32, error) { return 1, nil }
	slow := cared("slow", "Always", "livenessProbe: {exec: {command: [test]}, failureThreshold: 1}", "  terminationGracePeriodSeconds: 3600\n")
	r := newRun(t, fake, slow+pod("quick", "Always", "quick: exit 1"))
	if err := r.Start(t.Context(), r.plans); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	await(t, "the slow end", func() bool { fake.mu.Lock(); defer fake.mu.Unlock(); return len(fake.stops) > 0 })
	await(t, "the restart", func() bool { return r.Statuses()[1].Restarts == 1 })
	cancel()
	<-ended
	now := make(chan struct{})
	close(now)
	if err := r.Stop(t.Context(), now); err != nil {
		t.Error(err)
	}
	if left := r.left(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestCloseEndsProbes leaves the pod, and asks it nothing any more.
func TestCloseEndsProbes(t *testing.T) {
	fake := newFake()
	r := newRun(t, fake, cared("a", "Always", "readinessProbe: {exec: {command: [test]}, periodSeconds: 1}", ""))
	if err := r.Start(t.Context(), r.plans); err != nil {
		t.Fatal(err)
	}
	await(t, "a probe", func() bool { return strings.Contains(fake.did("main"), "exec test") })
	r.Close()
	before := fake.did("main")
	time.Sleep(1200 * time.Millisecond) // longer than the period
	if after := fake.did("main"); after != before || strings.Contains(after, "stop") {
		t.Errorf("%s, then %s", before, after)
	}
	if err := r.Stop(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestPreStopOfOthers stops a pod whose manifest nobody has any more.
func TestPreStopOfOthers(t *testing.T) {
	fake := newFake()
	fake.exec = func(context.Context, string, []string) (int32, error) { return 4, nil }
	r := newRun(t, fake, cared("a", "Always", "lifecycle: {preStop: {exec: {command: [pre, '$(X)']}}}", ""))
	if err := r.Start(t.Context(), r.plans); err != nil {
		t.Fatal(err)
	}
	r.Close()
	var notes []string
	how := removal.Pod{ID: r.Statuses()[0].ID, By: removal.In(50), Note: func(text string) { notes = append(notes, text) }}
	if err := removal.StopPod(t.Context(), r.cfg.Endpoint.Runtime, how); err != nil {
		t.Error(err)
	}
	if got := fake.did("main"); got != "create, start, exec pre $(X), stop" || !slices.Equal(fake.stops, []int64{50}) {
		t.Errorf("%s, timeouts %v", got, fake.stops)
	}
	if !slices.Equal(notes, []string{"container main: its preStop hook failed: the command ended with exit code 4"}) {
		t.Errorf("notes %q", notes)
	}
	if err := removal.RemovePod(t.Context(), r.cfg.Endpoint.Runtime, how); err != nil { // of what has ended
		t.Error(err)
	}
	if got := fake.did("main"); strings.Count(got, "exec") != 1 {
		t.Error(got)
	}
}
