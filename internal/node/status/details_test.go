package status_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/status"
)

func condition(t *testing.T, s corev1.PodStatus, kind corev1.PodConditionType) corev1.PodCondition {
	t.Helper()
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	t.Fatalf("there is no condition %s", kind)
	return corev1.PodCondition{}
}

// TestContainer wants everything that is told of a container.
func TestContainer(t *testing.T) {
	pod := wanted("a")
	requests := corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")}
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: requests}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v", ReadOnly: true}, {Name: "w", MountPath: "/w"}, {Name: "r", MountPath: "r/", ReadOnly: true}}
	seen := has("a=+#2")["a"]
	seen.Now.Resources = &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpuShares: 256, CpuPeriod: 100_000}}
	seen.Now.StopSignal = runtimeapi.Signal_SIGNAL_SIGRTMINPLUS3
	seen.Now.User = &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{Uid: 1, Gid: 2, SupplementalGroups: []int64{3}}}
	seen.Now.Mounts = []*runtimeapi.Mount{{ContainerPath: "/r", Readonly: true, RecursiveReadOnly: true}, {ContainerPath: "/v", Readonly: true}}
	seen.Last, seen.LastMessage = has("a=7#1")["a"].Now, "last words"
	seen.Last.Message = "runtime's"
	in := running(status.Input{Pod: pod, Plan: plan.Plan{Phase: "Running"}, Containers: map[string]status.Container{"a": seen}})
	want := corev1.ContainerStatus{
		Name: "a", Ready: true, Started: ptr(true), RestartCount: 2, Image: "runtime-a", ImageID: "ref-a", ContainerID: "fairlead://a2",
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at(-60).Truncate(time.Second))}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 7, Reason: "Error", Message: "runtime's: last words", ContainerID: "fairlead://a1",
			StartedAt: metav1.NewTime(at(-60).Truncate(time.Second)), FinishedAt: metav1.NewTime(at(-5).Truncate(time.Second)),
		}},
		AllocatedResources: requests, Resources: &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("250m"), "memory": resource.MustParse("64Mi")}},
		User: &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: 1, GID: 2, SupplementalGroups: []int64{3}}},
		VolumeMounts: []corev1.VolumeMountStatus{
			{Name: "v", MountPath: "/v", ReadOnly: true, RecursiveReadOnly: ptr(corev1.RecursiveReadOnlyDisabled)},
			{Name: "w", MountPath: "/w"},
			{Name: "r", MountPath: "r/", ReadOnly: true, RecursiveReadOnly: ptr(corev1.RecursiveReadOnlyEnabled)},
		},
		StopSignal: ptr(corev1.Signal("SIGRTMIN+3")),
	}
	if d := cmp.Diff(want, status.Of(in).ContainerStatuses[0], cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })); d != "" {
		t.Error(d)
	}
	seen.Now.Image = &runtimeapi.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "asked"}
	if got := status.Of(in).ContainerStatuses[0].Image; got != "asked" {
		t.Errorf("image %q", got)
	}
}

// TestNeverStarted wants a start of what has an end.
func TestNeverStarted(t *testing.T) {
	in := running(status.Input{Pod: wanted("a"), Containers: has("a=128")})
	in.Containers["a"].Now.StartedAt, in.Containers["a"].Now.Reason = 0, "StartError"
	got := status.Of(in).ContainerStatuses[0].State.Terminated
	if got.FinishedAt.IsZero() || !got.StartedAt.Equal(&got.FinishedAt) || got.Reason != "StartError" {
		t.Errorf("%+v", got)
	}
}

func TestPodResources(t *testing.T) {
	pod := wanted("a b")
	list := func(cpu string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(cpu)} }
	pod.Spec.Containers[0].Resources.Requests, pod.Spec.Containers[1].Resources.Requests = list("1"), list("500m")
	pod.Spec.Overhead = list("3")
	s := status.Of(running(status.Input{Pod: pod}))
	if got := s.AllocatedResources.Cpu(); got.String() != "1500m" || s.Resources != nil {
		t.Errorf("%s, %v", got, s.Resources)
	}
	pod.Spec.Resources = &corev1.ResourceRequirements{Requests: list("2")}
	s = status.Of(running(status.Input{Pod: pod}))
	if got := s.AllocatedResources.Cpu(); got.String() != "2" || s.Resources.Requests.Cpu().String() != "2" {
		t.Errorf("%s, %v", got, s.Resources)
	}
	pod.Spec.Resources.Requests = list("4")
	s = status.Of(running(status.Input{Pod: pod, Previous: &s, Conditions: []corev1.PodCondition{{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue}}}))
	if got := s.AllocatedResources.Cpu(); got.String() != "4" || s.Resources.Requests.Cpu().String() != "2" {
		t.Errorf("amid a resize: %s, %v", got, s.Resources)
	}
}

func TestBackOff(t *testing.T) {
	for crashes, want := range map[int]string{2: "10s", 4: "40s", 20: "5m0s"} {
		in := running(status.Input{Pod: wanted("a"), Containers: has("a=1")})
		ended := time.Unix(0, in.Containers["a"].Now.FinishedAt)
		in.Plan.Waiting = map[string]plan.Waiting{"a": {Reason: plan.CrashLoopBackOff, Until: ended.Add(plan.Backoff(crashes, 0))}}
		got := status.Of(in).ContainerStatuses[0].State.Waiting.Message
		if got != "back-off "+want+" restarting failed container=a pod=web_default(u)" {
			t.Error(got)
		}
	}
}

func TestTimes(t *testing.T) {
	in := running(status.Input{Pod: wanted("a"), Plan: plan.Plan{Phase: "Running"}, Containers: has("a=-")})
	one := status.Of(in)
	in.Previous, in.Now, in.Started, in.Containers = &one, at(30), at(20), has("a=+")
	two := status.Of(in)
	if got := condition(t, two, corev1.PodInitialized).LastTransitionTime; !got.Equal(ptr(condition(t, one, corev1.PodInitialized).LastTransitionTime)) {
		t.Errorf("a condition that stayed has changed at %v", got)
	}
	if got := condition(t, two, corev1.PodReady).LastTransitionTime; !got.Equal(ptr(metav1.NewTime(at(30).Truncate(time.Second)))) {
		t.Errorf("a condition that changed did so at %v", got)
	}
	if !two.StartTime.Equal(one.StartTime) || !one.StartTime.Equal(ptr(metav1.NewTime(at(-100).Truncate(time.Second)))) {
		t.Errorf("the pod began at %v, then %v", one.StartTime, two.StartTime)
	}
	if two.ObservedGeneration != 3 || condition(t, two, corev1.PodReady).ObservedGeneration != 3 {
		t.Error("the generation is not told")
	}
	// After a restart what the API server has counts as told.
	in.Pod.Status, in.Previous, in.Now = two, nil, at(90)
	if three := status.Of(in); !status.Equal(&two, &three) {
		t.Error(cmp.Diff(two, three))
	}
	in.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	four := status.Of(in)
	in.Conditions, in.Previous = nil, &four
	if got := condition(t, status.Of(in), corev1.DisruptionTarget); got.Status != corev1.ConditionTrue || got.ObservedGeneration != 3 {
		t.Errorf("a disruption is forgotten: %v", got)
	}
}

func TestAddresses(t *testing.T) {
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := wanted("a")
		change(p)
		return p
	}
	told := &corev1.PodStatus{PodIP: "10.1.0.9", PodIPs: []corev1.PodIP{{IP: "10.1.0.9"}}}
	for name, tt := range map[string]struct {
		in   status.Input
		host []string
		want string
	}{
		"as the runtime says":       {status.Input{Pod: wanted("a")}, []string{"192.0.2.1", "2001:db8::1"}, "10.1.0.2 fd00::2"},
		"the node's family first":   {status.Input{Pod: wanted("a")}, []string{"2001:db8::1"}, "fd00::2 10.1.0.2"},
		"the node's own":            {status.Input{Pod: pod(func(p *corev1.Pod) { p.Spec.HostNetwork = true })}, []string{"192.0.2.1", "192.0.2.2", "2001:db8::1"}, "192.0.2.1 2001:db8::1"},
		"none, without a sandbox":   {status.Input{Pod: wanted("a"), Sandbox: box(false), Previous: told}, nil, ""},
		"what it had, once it ends": {status.Input{Pod: pod(func(p *corev1.Pod) { p.DeletionTimestamp = ptr(metav1.NewTime(now)) }), Sandbox: box(false), Previous: told}, nil, "10.1.0.9"},
	} {
		in := running(tt.in)
		in.HostIPs = tt.host
		s := status.Of(in)
		var got []string
		for _, ip := range s.PodIPs {
			got = append(got, ip.IP)
		}
		if strings.Join(got, " ") != tt.want || len(got) > 0 && s.PodIP != got[0] {
			t.Errorf("%s: %v and %s", name, got, s.PodIP)
		}
		if len(s.HostIPs) != min(len(tt.host), 2) || len(tt.host) > 0 && (s.HostIP != tt.host[0] || s.HostIPs[0].IP != s.HostIP || s.HostIPs[len(s.HostIPs)-1].IP != tt.host[len(tt.host)-1]) {
			t.Errorf("%s: the node's are %v and %s", name, s.HostIPs, s.HostIP)
		}
	}
}

func TestEqual(t *testing.T) {
	full := func() *corev1.PodStatus {
		s := status.Of(running(status.Input{Pod: wanted("i a"), Plan: plan.Plan{Phase: "Running"}, Containers: has("i=0 a=+")}))
		return &s
	}
	for name, tt := range map[string]struct {
		change func(*corev1.PodStatus)
		want   bool
	}{
		"nothing":                 {func(*corev1.PodStatus) {}, true},
		"the order of conditions": {func(s *corev1.PodStatus) { slices.Reverse(s.Conditions) }, true},
		"parts of a second":       {func(s *corev1.PodStatus) { s.StartTime.Time = s.StartTime.Add(time.Millisecond) }, true},
		"empty and missing":       {func(s *corev1.PodStatus) { s.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{} }, true},
		"the phase":               {func(s *corev1.PodStatus) { s.Phase = "Failed" }, false},
		"a condition's reason":    {func(s *corev1.PodStatus) { s.Conditions[0].Reason = "x" }, false},
		"a container":             {func(s *corev1.PodStatus) { s.ContainerStatuses[0].Ready = false }, false},
	} {
		a, b := full(), full()
		tt.change(b)
		if got := status.Equal(a, b); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !status.Equal(nil, nil) || status.Equal(full(), nil) || status.Ready(nil) || !status.Ready(full()) {
		t.Error("nil")
	}
}

// chance makes inputs of a number.
type chance struct{ *rand.Rand }

func (c chance) of(n int) bool { return c.IntN(n) == 0 }

func (c chance) pod() *corev1.Pod {
	p := wanted(pick(c, "", "i ", "s ", "i1 s i2 ") + pick(c, "a", "b a", "") + pick(c, "", " e"))
	if c.of(4) {
		p.DeletionTimestamp = ptr(metav1.NewTime(now))
	}
	p.Spec.HostNetwork = c.of(5)
	p.Spec.RestartPolicy = pick(c, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	if c.of(3) {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "x"}}
	}
	for range c.IntN(4) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: pick[corev1.PodConditionType](c, "x", "Ready", "DisruptionTarget"), Status: pick[corev1.ConditionStatus](c, "True", "False")})
	}
	return p
}

func pick[T any](c chance, from ...T) T { return from[c.IntN(len(from))] }

func (c chance) input(pod *corev1.Pod, before *corev1.PodStatus) status.Input {
	in := status.Input{Pod: pod, Previous: before, Now: at(c.IntN(1000)), HostIPs: pick(c, nil, []string{"192.0.2.1"}), Runtime: "r", Containers: map[string]status.Container{}, Waiting: map[string]corev1.ContainerStateWaiting{}}
	in.Plan = plan.Plan{Phase: pick[corev1.PodPhase](c, "", "Pending", "Running", "Succeeded", "Failed"), Reason: pick(c, "", "", "DeadlineExceeded"), Waiting: waits(pick(c, "", "a=CrashLoopBackOff i=PodInitializing", "b=ContainerCreating"))}
	in.Sandbox = pick(c, nil, box(false), box(true))
	for _, name := range strings.Fields("i i1 i2 s a b e") {
		if c.of(3) {
			continue
		}
		seen := has(name + "=" + pick(c, "+", "-", "~", "?", "0", "3") + pick(c, "", "#2"))[name]
		if c.of(3) {
			seen.Last = has(name + "=4#1")[name].Now
		}
		in.Containers[name] = seen
	}
	if c.of(4) {
		in.Waiting["a"] = corev1.ContainerStateWaiting{Reason: "ErrImagePull"}
	}
	if c.of(6) {
		in.Ended = &status.Ended{Reason: "Evicted"}
	}
	if c.of(4) {
		in.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}, {Type: "Ready", Status: corev1.ConditionFalse}}
	}
	return in
}

// FuzzOf follows a pod through facts of chance: what must hold whatever happens.
func FuzzOf(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		c := chance{rand.New(rand.NewPCG(seed, 1))}
		pod := c.pod()
		var before *corev1.PodStatus
		for range 12 {
			in := c.input(pod, before)
			told, spec := before.DeepCopy(), pod.DeepCopy()
			others := fmt.Sprint(in.Plan, in.Waiting, in.Conditions, in.HostIPs)
			got := status.Of(in)
			if !reflect.DeepEqual(told, before) || !reflect.DeepEqual(spec, pod) || others != fmt.Sprint(in.Plan, in.Waiting, in.Conditions, in.HostIPs) {
				t.Fatal("the facts were changed")
			}
			in.Previous = &got
			if again := status.Of(in); !status.Equal(&got, &again) {
				t.Fatalf("told twice it is another: %s", cmp.Diff(got, again))
			}
			holds(t, pod, told, &got)
			stays(t, pod, told, &got)
			before = &got
		}
	})
}

// TestProbed never tells of a container that ended with 0 for a probe as if it had done its
// work: an API server would let nothing run after that where the policy is OnFailure.
func TestProbed(t *testing.T) {
	pod, ended := wanted("a"), has("a=0")["a"]
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	ended.Probed = true
	in := running(status.Input{
		Pod: pod, Containers: map[string]status.Container{"a": ended},
		Plan: plan.Plan{Phase: corev1.PodRunning, Waiting: map[string]plan.Waiting{"a": {Reason: plan.ContainerCreating}}},
	})
	got := status.Of(in)
	if c := got.ContainerStatuses[0]; c.State.Waiting == nil || c.LastTerminationState.Terminated == nil {
		t.Errorf("%+v", c)
	}
	in.Previous, in.Containers = &got, has("a=+#1")
	got = status.Of(in)
	if c := got.ContainerStatuses[0]; c.State.Running == nil {
		t.Errorf("%+v", c)
	}
}

// stays wants no container to leave its end that its policy does not restart: the API
// server would refuse that.
func stays(t *testing.T, pod *corev1.Pod, before, got *corev1.PodStatus) {
	t.Helper()
	if before == nil {
		return
	}
	now := slices.Concat(got.InitContainerStatuses, got.ContainerStatuses, got.EphemeralContainerStatuses)
	for _, c := range slices.Concat(before.InitContainerStatuses, before.ContainerStatuses, before.EphemeralContainerStatuses) {
		end := c.State.Terminated
		policy := pod.Spec.RestartPolicy
		if end == nil || c.Name[0] == 's' || c.Name[0] != 'e' && (policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && end.ExitCode != 0) {
			continue
		}
		for i := range now {
			if now[i].Name == c.Name && now[i].State.Terminated == nil {
				t.Fatalf("container %s had ended: %+v", c.Name, now[i].State)
			}
		}
	}
}

func holds(t *testing.T, pod *corev1.Pod, before, got *corev1.PodStatus) {
	t.Helper()
	if before != nil && status.Terminal(before.Phase) && (got.Phase != before.Phase || got.Reason != before.Reason) {
		t.Fatalf("it was %s and became %s", before.Phase, got.Phase)
	}
	seen := map[corev1.PodConditionType]bool{}
	for _, c := range got.Conditions {
		if seen[c.Type] || c.Status == "" || c.LastTransitionTime.IsZero() && c.Type != "x" && c.Type != corev1.DisruptionTarget {
			t.Fatalf("condition %+v", c)
		}
		seen[c.Type] = true
	}
	none := got.Phase == corev1.PodFailed && len(got.InitContainerStatuses)+len(got.ContainerStatuses)+len(got.EphemeralContainerStatuses) == 0
	if !none && len(got.InitContainerStatuses) != len(pod.Spec.InitContainers) || !none && len(got.ContainerStatuses) != len(pod.Spec.Containers) || !none && len(got.EphemeralContainerStatuses) != len(pod.Spec.EphemeralContainers) {
		t.Fatal("there is not one status for each container")
	}
	for i, c := range slices.Concat(got.InitContainerStatuses, got.ContainerStatuses, got.EphemeralContainerStatuses) {
		s := c.State
		states := 0
		for _, is := range []bool{s.Running != nil, s.Waiting != nil, s.Terminated != nil} {
			if is {
				states++
			}
		}
		if states != 1 || c.Ready && s.Waiting != nil {
			t.Fatalf("container %d: %+v", i, c)
		}
		if s.Running != nil && status.Terminal(got.Phase) && (before == nil || !status.Terminal(before.Phase)) {
			t.Fatalf("the pod is %s, and container %s runs", got.Phase, c.Name)
		}
	}
	if status.Ready(got) && status.Terminal(got.Phase) {
		t.Fatal("a pod that ended is ready")
	}
}

// TestWithoutSandbox has pods that end with nothing of them there.
func TestWithoutSandbox(t *testing.T) {
	before := func(in status.Input) *corev1.PodStatus {
		in.Pod = wanted("a")
		s := status.Of(running(in))
		return &s
	}
	again := plan.Plan{Phase: corev1.PodPending, Waiting: waits("a=ContainerCreating")}
	for name, tt := range map[string]struct {
		in   status.Input
		want string
	}{
		"not admitted": {
			status.Input{Pod: wanted("i a"), Ended: &status.Ended{Reason: "OutOfcpu"}},
			"Failed (OutOfcpu) !Sandbox() !Initialized(Incomplete) !Ready(PodFailed) !Containers(PodFailed)",
		},
		"not admitted, asked again": {
			status.Input{Pod: wanted("a"), Plan: again, Previous: &corev1.PodStatus{Phase: "Failed", Reason: "OutOfcpu"}},
			"Failed (OutOfcpu) !Sandbox() Initialized !Ready(PodFailed) !Containers(PodFailed)",
		},
		"evicted before it began": {
			status.Input{Pod: wanted("a"), Ended: &status.Ended{Reason: "Evicted"}, Previous: before(status.Input{})},
			"Failed (Evicted) a=ContainerStatusUnknown137 !Sandbox() Initialized !Ready(PodFailed) !Containers(PodFailed)",
		},
		"its containers are removed": {
			status.Input{Pod: wanted("a"), Plan: again, Previous: before(status.Input{Plan: plan.Plan{Phase: "Succeeded"}, Containers: has("a=0"), Sandbox: box(false)})},
			"Succeeded a=Completed0 !Sandbox() Initialized !Ready(PodCompleted) !Containers(PodCompleted)",
		},
	} {
		in := running(tt.in)
		in.Sandbox = nil
		if d := cmp.Diff(tt.want, short(status.Of(in))); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}
