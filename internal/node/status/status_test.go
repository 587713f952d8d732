package status_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/status"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 500, time.UTC)

func at(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }

func ptr[T any](v T) *T { return &v }

// wanted makes a pod of words: "i*" are init containers, "s*" sidecars, "e*"
// ephemeral ones, and others are containers.
func wanted(words string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u", Generation: 3}}
	for name := range strings.FieldsSeq(words) {
		c := corev1.Container{Name: name, Image: "image-" + name}
		switch name[0] {
		case 's':
			c.RestartPolicy = ptr(corev1.ContainerRestartPolicyAlways)
			fallthrough
		case 'i':
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case 'e':
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(c)})
		default:
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

// has makes containers of words: a name, and "=" with a state: "+" for ready, "-"
// for running only, "~" for created, "?" for unknown, or an exit code. A "#" and a number of
// the attempt may follow.
func has(words string) map[string]status.Container {
	out := map[string]status.Container{}
	for word := range strings.FieldsSeq(words) {
		name, state, _ := strings.Cut(word, "=")
		state, number, _ := strings.Cut(state, "#")
		attempt := uint32(0)
		if number != "" {
			fmt.Sscan(number, &attempt)
		}
		s := &runtimeapi.ContainerStatus{
			Id: fmt.Sprint(name, attempt), Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
			State: runtimeapi.ContainerState_CONTAINER_RUNNING, CreatedAt: at(-60).UnixNano(), StartedAt: at(-60).UnixNano(),
			Image: &runtimeapi.ImageSpec{Image: "runtime-" + name}, ImageRef: "ref-" + name,
		}
		c := status.Container{Now: s}
		switch state {
		case "+":
			c.Ready, c.Started = true, true
		case "-":
		case "~":
			s.State, s.StartedAt = runtimeapi.ContainerState_CONTAINER_CREATED, 0
		case "?":
			s.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
		default:
			s.State, s.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, at(-5).UnixNano()
			fmt.Sscan(state, &s.ExitCode)
		}
		out[name] = c
	}
	return out
}

func box(ready bool) *runtimeapi.PodSandboxStatus {
	s := &runtimeapi.PodSandboxStatus{
		Id: "box", CreatedAt: at(-90).UnixNano(), State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.1.0.2", AdditionalIps: []*runtimeapi.PodIP{{Ip: "fd00::2"}}},
	}
	if ready {
		s.State = runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return s
}

func running(in status.Input) status.Input {
	if in.Sandbox == nil {
		in.Sandbox = box(true)
	}
	in.Now, in.Started, in.HostIPs, in.Runtime = now, at(-100), []string{"192.0.2.1"}, "fairlead"
	return in
}

// short writes a status in a few words.
func short(s corev1.PodStatus) string {
	words := []string{string(s.Phase)}
	if s.Reason != "" {
		words = append(words, "("+s.Reason+")")
	}
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for _, c := range list {
			words = append(words, shortContainer(c))
		}
	}
	for _, c := range s.Conditions {
		if c.Status == corev1.ConditionTrue {
			words = append(words, string(c.Type))
		} else {
			words = append(words, fmt.Sprintf("!%s(%s)", c.Type, c.Reason))
		}
	}
	text := strings.NewReplacer(
		"PodReadyToStartContainers", "Sandbox", "ContainersNotReady", "NotReady", "ContainersReady", "Containers",
		"ContainersNotInitialized", "Incomplete", "ReadinessGatesNotReady", "Gates", " PodScheduled", "",
	).Replace(strings.Join(words, " "))
	return text
}

func shortContainer(c corev1.ContainerStatus) string {
	state := func(s corev1.ContainerState) string {
		switch {
		case s.Running != nil:
			return "running"
		case s.Waiting != nil:
			return s.Waiting.Reason
		case s.Terminated != nil:
			return fmt.Sprint(s.Terminated.Reason, s.Terminated.ExitCode)
		}
		return ""
	}
	text := c.Name + "=" + state(c.State)
	if last := state(c.LastTerminationState); last != "" {
		text += "<" + last
	}
	if c.RestartCount > 0 {
		text += fmt.Sprint("#", c.RestartCount)
	}
	if c.Started != nil && *c.Started {
		text += ",up"
	}
	if c.Ready {
		text += ",ready"
	}
	return text
}

func waits(words string) map[string]plan.Waiting {
	out := map[string]plan.Waiting{}
	for word := range strings.FieldsSeq(words) {
		name, reason, _ := strings.Cut(word, "=")
		out[name] = plan.Waiting{Reason: reason, Until: at(5)}
	}
	return out
}

func TestOf(t *testing.T) {
	planned := func(phase corev1.PodPhase, words string) plan.Plan {
		return plan.Plan{Phase: phase, Waiting: waits(words)}
	}
	before := func(words string, in status.Input) *corev1.PodStatus {
		in.Pod = wanted(words)
		s := status.Of(running(in))
		return &s
	}
	never := wanted("i a")
	never.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	gate := wanted("a")
	gate.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "x"}}
	open := gate.DeepCopy()
	open.Status.Conditions = []corev1.PodCondition{{Type: "x", Status: corev1.ConditionTrue}}
	deleted := func(words string) *corev1.Pod {
		p := wanted(words)
		p.DeletionTimestamp = ptr(metav1.NewTime(now))
		return p
	}
	const ready = "Sandbox Initialized Ready Containers"
	const notReady = "Sandbox Initialized !Ready(NotReady) !Containers(NotReady)"
	const incomplete = "Sandbox !Initialized(Incomplete) !Ready(NotReady) !Containers(NotReady)"
	const failed = "!Sandbox() Initialized !Ready(PodFailed) !Containers(PodFailed)"
	for name, tt := range map[string]struct {
		in   status.Input
		want string
	}{
		"nothing yet":      {status.Input{Pod: wanted("a"), Sandbox: box(false)}, "Pending a=ContainerCreating !Sandbox() Initialized !Ready(NotReady) !Containers(NotReady)"},
		"ready, by name":   {status.Input{Pod: wanted("b a"), Plan: planned("Running", ""), Containers: has("a=+ b=+")}, "Running a=running,up,ready b=running,up,ready " + ready},
		"up and not ready": {status.Input{Pod: wanted("a"), Plan: planned("Running", ""), Containers: has("a=-")}, "Running a=running " + notReady},
		"created":          {status.Input{Pod: wanted("a"), Containers: has("a=~")}, "Pending a=ContainerCreating " + notReady},
		"an image is missing": {
			status.Input{Pod: wanted("a"), Plan: planned("Pending", "a=ContainerCreating"), Waiting: map[string]corev1.ContainerStateWaiting{"a": {Reason: "ErrImagePull", Message: "m"}}},
			"Pending a=ErrImagePull " + notReady,
		},
		"what runs does not wait": {
			status.Input{Pod: wanted("a"), Plan: planned("Running", "a=ContainerCreating"), Containers: has("a=+"), Waiting: map[string]corev1.ContainerStateWaiting{"a": {Reason: "ErrImagePull"}}},
			"Running a=running,up,ready " + ready,
		},
		"init containers, in their order": {
			status.Input{Pod: wanted("s i2 i1 a"), Plan: planned("Pending", "i2=ContainerCreating i1=PodInitializing a=PodInitializing"), Containers: has("s=+")},
			"Pending s=running,up,ready i2=PodInitializing i1=PodInitializing a=PodInitializing " + incomplete,
		},
		"an init container runs": {status.Input{Pod: wanted("i a"), Containers: has("i=+")}, "Pending i=running,up a=PodInitializing " + incomplete},
		"an init container that fails": {
			status.Input{Pod: wanted("i a"), Plan: planned("Pending", "i=CrashLoopBackOff a=PodInitializing"), Containers: has("i=3#2")},
			"Pending i=CrashLoopBackOff<Error3#2 a=PodInitializing " + incomplete,
		},
		"init containers are done": {
			status.Input{Pod: wanted("i a"), Plan: planned("Pending", "a=ContainerCreating"), Containers: has("i=0")},
			"Pending i=Completed0,ready a=PodInitializing " + notReady,
		},
		"init containers are gone": {
			status.Input{Pod: wanted("i a"), Plan: planned("Running", ""), Containers: has("a=+")},
			"Running i=PodInitializing a=running,up,ready " + ready,
		},
		"a sidecar is not ready": {
			status.Input{Pod: wanted("s a"), Plan: planned("Running", ""), Containers: has("s=- a=+")},
			"Running s=running a=running,up,ready " + notReady,
		},
		"a pause": {
			status.Input{Pod: wanted("a b"), Plan: planned("Running", "a=CrashLoopBackOff"), Containers: has("a=3#4 b=+")},
			"Running a=CrashLoopBackOff<Error3#4 b=running,up,ready " + notReady,
		},
		"it ended, and starts at once": {
			status.Input{Pod: wanted("a"), Plan: planned("Running", "a=ContainerCreating"), Containers: has("a=3")},
			"Running a=Error3 " + notReady,
		},
		"it cannot be started again": {
			status.Input{Pod: wanted("a"), Plan: planned("Running", "a=ContainerCreating"), Containers: has("a=0"), Waiting: map[string]corev1.ContainerStateWaiting{"a": {Reason: "RunContainerError"}}},
			"Running a=RunContainerError<Completed0 " + notReady,
		},
		"a container that was lost": {
			status.Input{Pod: wanted("a b"), Plan: planned("Pending", "a=ContainerCreating"), Containers: has("b=+"), Previous: before("a b", status.Input{Plan: planned("Running", ""), Containers: has("a=+#1 b=+")})},
			"Running a=ContainerCreating<ContainerStatusUnknown137#2 b=running,up,ready " + notReady,
		},
		"one that was lost, made again": {
			status.Input{Pod: wanted("a"), Plan: planned("Running", ""), Containers: has("a=+"), Previous: before("a", status.Input{Plan: planned("Running", ""), Containers: has("a=+#7")})},
			"Running a=running<ContainerStatusUnknown137#7,up,ready " + ready,
		},
		"nobody knows what it does": {
			status.Input{Pod: wanted("a"), Plan: planned("Running", ""), Containers: has("a=?")},
			"Running a=ContainerStatusUnknown " + notReady,
		},
		"nobody knows any more what it does": {
			status.Input{Pod: wanted("a"), Plan: planned("Running", ""), Containers: has("a=?"), Previous: before("a", status.Input{Plan: planned("Running", ""), Containers: has("a=+")})},
			"Running a=running " + notReady,
		},
		"its init containers work again": {
			status.Input{Pod: never, Plan: planned("Pending", "a=PodInitializing"), Containers: has("i=-#1"), Previous: before("i a", status.Input{Containers: has("i=0")})},
			"Pending i=Completed0#1,ready a=PodInitializing " + incomplete,
		},
		"its end was removed": {
			status.Input{Pod: wanted("a b"), Plan: planned("Running", ""), Containers: has("b=+"), Previous: before("a b", status.Input{Plan: planned("Running", ""), Containers: has("a=0#1 b=+")})},
			"Running a=Completed0#1 b=running,up,ready " + notReady,
		},
		"all begin again": {
			status.Input{Pod: wanted("a"), Plan: planned("Running", "a=ContainerCreating"), Previous: before("a", status.Input{Plan: planned("Running", ""), Containers: has("a=9#1")})},
			"Running a=ContainerCreating<Error9#1 " + notReady,
		},
		"the sandbox is made again": {
			status.Input{Pod: wanted("i a"), Plan: planned("Running", "i=ContainerCreating a=PodInitializing"), Containers: has("i=0 a=137"), Sandbox: &runtimeapi.PodSandboxStatus{CreatedAt: at(-1).UnixNano()}},
			"Running i=Completed0,ready a=Error137 !Sandbox() !Initialized(Incomplete) !Ready(NotReady) !Containers(NotReady)",
		},
		"it succeeded": {
			status.Input{Pod: wanted("i a"), Plan: planned("Succeeded", ""), Containers: has("i=0 a=0"), Sandbox: box(false)},
			"Succeeded i=Completed0,ready a=Completed0 !Sandbox() Initialized !Ready(PodCompleted) !Containers(PodCompleted)",
		},
		"it succeeded, and a sidecar still runs": {
			status.Input{Pod: wanted("s a"), Plan: planned("Succeeded", ""), Containers: has("s=+ a=0")},
			"Running s=running,up,ready a=Completed0 " + notReady,
		},
		"it is late, and still runs": {
			status.Input{Pod: wanted("a"), Plan: plan.Plan{Phase: "Failed", Reason: "DeadlineExceeded"}, Containers: has("a=+")},
			"Running a=running,up,ready " + ready,
		},
		"it was late": {
			status.Input{Pod: wanted("a"), Plan: plan.Plan{Phase: "Failed", Reason: "DeadlineExceeded"}, Containers: has("a=137"), Sandbox: box(false)},
			"Failed (DeadlineExceeded) a=Error137 " + failed,
		},
		"evicted, and still runs": {
			status.Input{Pod: wanted("a"), Plan: planned("Running", ""), Containers: has("a=+"), Ended: &status.Ended{Reason: "Evicted"}, Conditions: []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}},
			"Running a=running,up,ready DisruptionTarget " + ready,
		},
		"evicted": {
			status.Input{Pod: wanted("a b"), Plan: planned("Running", "b=CrashLoopBackOff"), Containers: has("a=137 b=1"), Sandbox: box(false), Ended: &status.Ended{Reason: "Evicted"}},
			"Failed (Evicted) a=Error137 b=Error1 " + failed,
		},
		"deleted before it began": {
			status.Input{Pod: deleted("a"), Sandbox: box(false), Waiting: map[string]corev1.ContainerStateWaiting{"a": {Reason: "ImagePullBackOff"}}},
			"Failed a=ContainerStatusUnknown137 " + failed,
		},
		"deleted amid its init containers": {
			status.Input{Pod: deleted("i1 i2 i3 a"), Sandbox: box(false), Containers: has("i2=137")},
			"Failed i1=ContainerStatusUnknown137 i2=Error137 i3=PodInitializing a=PodInitializing !Sandbox() !Initialized(Incomplete) !Ready(PodFailed) !Containers(PodFailed)",
		},
		"deleted, and well ended": {
			status.Input{Pod: deleted("a"), Plan: planned("Succeeded", ""), Sandbox: box(false), Containers: has("a=0")},
			"Succeeded a=Completed0 !Sandbox() Initialized !Ready(PodCompleted) !Containers(PodCompleted)",
		},
		"deleted, and lost": {
			status.Input{Pod: deleted("a"), Plan: planned("Pending", ""), Sandbox: box(false), Previous: before("a", status.Input{Plan: planned("Running", ""), Containers: has("a=+")})},
			"Failed a=ContainerStatusUnknown137 " + failed,
		},
		"it does not come back": {
			status.Input{Pod: wanted("a"), Plan: planned("Running", ""), Containers: has("a=+"), Previous: &corev1.PodStatus{Phase: "Failed", Reason: "Evicted"}},
			"Failed (Evicted) a=running,up,ready Sandbox Initialized !Ready(PodFailed) !Containers(PodFailed)",
		},
		"a gate that nobody opened": {
			status.Input{Pod: gate, Plan: planned("Running", ""), Containers: has("a=+")},
			"Running a=running,up,ready Sandbox Initialized !Ready(Gates) Containers",
		},
		"a gate that is shut": {
			status.Input{Pod: gate, Plan: planned("Running", ""), Containers: has("a=+"), Conditions: []corev1.PodCondition{{Type: "x", Status: corev1.ConditionFalse, Reason: "r"}}},
			"Running a=running,up,ready !x(r) Sandbox Initialized !Ready(Gates) Containers",
		},
		"a gate that is open": {
			status.Input{Pod: open, Plan: planned("Running", ""), Containers: has("a=+")},
			"Running a=running,up,ready x " + ready,
		},
		"an ephemeral container": {
			status.Input{Pod: wanted("a e"), Plan: planned("Running", ""), Containers: has("a=+ e=+")},
			"Running a=running,up,ready e=running " + ready,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, short(status.Of(running(tt.in)))); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestWasUp goes by the id of the attempt alone.
func TestWasUp(t *testing.T) {
	p := &corev1.Pod{Status: corev1.PodStatus{
		InitContainerStatuses: []corev1.ContainerStatus{{ContainerID: "x://sidecar", Started: new(true)}},
		ContainerStatuses:     []corev1.ContainerStatus{{ContainerID: "x://both", Started: new(true), Ready: true}, {ContainerID: "x://none"}, {}},
	}}
	for id, want := range map[string][2]bool{"sidecar": {true, false}, "both": {true, true}, "none": {}, "another": {}} {
		if started, ready := status.WasUp(p, id); [2]bool{started, ready} != want {
			t.Errorf("%s: started %v, ready %v", id, started, ready)
		}
	}
}

// TestAllContainersRestarting tells while all containers are about to begin again, takes it
// back after that, and tells nothing of it where no rule asks for it (KEP-5532).
func TestAllContainersRestarting(t *testing.T) {
	p := wanted("a b")
	p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
	var before *corev1.PodStatus
	for _, step := range []struct {
		has, over string
		phase     corev1.PodPhase
		want      string
		at        time.Time
	}{
		{"a=+ b=+", "", corev1.PodRunning, "False ", at(0)},
		{"a=42 b=+", "a", corev1.PodRunning, "True RestartAllContainersStarted", at(10)},
		{"a=42 b=143", "a", corev1.PodRunning, "True RestartAllContainersStarted", at(10)},
		{"a=+#1 b=+#1", "", corev1.PodRunning, "False ", at(30)},
		{"a=1#1 b=0#1", "", corev1.PodFailed, "False PodFailed", at(30)},
	} {
		in := running(status.Input{Pod: p, Previous: before, Plan: plan.Plan{Phase: step.phase, StartsOver: step.over}, Containers: has(step.has), Sandbox: box(step.phase == corev1.PodRunning)})
		in.Now = step.at
		s := status.Of(in)
		var got *corev1.PodCondition
		for i := range s.Conditions {
			if s.Conditions[i].Type == corev1.AllContainersRestarting {
				got = &s.Conditions[i]
			}
		}
		if got == nil || string(got.Status)+" "+got.Reason != step.want || !got.LastTransitionTime.Time.Equal(step.at.Truncate(time.Second)) {
			t.Errorf("%s: %+v, want %s", step.has, got, step.want)
		}
		if got != nil && (got.Status == corev1.ConditionTrue) != strings.Contains(got.Message, "container a") {
			t.Errorf("%s: %q", step.has, got.Message)
		}
		before = &s
	}
	plain := status.Of(running(status.Input{Pod: wanted("a"), Plan: plan.Plan{Phase: corev1.PodRunning}, Containers: has("a=+")}))
	if strings.Contains(short(plain), string(corev1.AllContainersRestarting)) {
		t.Errorf("%+v", plain.Conditions)
	}
}
