package plan_test

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"fairlead.run/internal/node/plan"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// wanted makes a pod of words: "i" is an init container, "s*" sidecars, "e*"
// ephemeral ones, and others are containers.
func wanted(words string, change ...func(*corev1.Pod)) *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	p := &corev1.Pod{}
	for name := range strings.FieldsSeq(words) {
		c := corev1.Container{Name: name}
		switch name[0] {
		case 's':
			c.RestartPolicy = &always
			fallthrough
		case 'i':
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case 'e':
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(c)})
		default:
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	for _, f := range change {
		f(p)
	}
	return p
}

// hooked gives containers postStart and preStop hooks.
func hooked(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				if slices.Contains(names, list[i].Name) {
					list[i].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{}, PreStop: &corev1.LifecycleHandler{}}
				}
			}
		}
	}
}

func policy(p corev1.RestartPolicy) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.RestartPolicy = p }
}

func ruled(name string, action corev1.ContainerRestartRuleAction, in corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) func(*corev1.Pod) {
	never := corev1.ContainerRestartPolicyNever
	return func(p *corev1.Pod) {
		for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				if list[i].Name == name {
					list[i].RestartPolicy = &never
					list[i].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: in, Values: codes}}}
				}
			}
		}
	}
}

// seen makes what was observed of words: "sandbox" or "sandbox:gone" of attempt
// 2, and containers with what they do, such as a:up (running, and its startup
// probe has passed), a:ready, a:running, a:starting (its postStart hook runs), a:0 (ended with code 0, just now, for the first
// time), a:1x3 (with code 1 for the third time), a:created, a:unknown, a:sick,
// a:0probed (ended with code 0 for a probe).
// "a@old" was in a sandbox that is gone.
func seen(t *testing.T, words string) plan.Observed {
	t.Helper()
	o := plan.Observed{Containers: map[string]*plan.Container{}}
	for word := range strings.FieldsSeq(words) {
		name, does, _ := strings.Cut(word, ":")
		if name == "sandbox" {
			o.Sandbox = &plan.Sandbox{ID: "box", Attempt: 2, Ready: does != "gone"}
			continue
		}
		name, old, _ := strings.Cut(name, "@")
		c := &plan.Container{ID: "id-" + name, Sandbox: "box" + old, Attempt: 4}
		o.Containers[name] = c
		switch does {
		case "up", "ready", "running", "starting", "sick", "warned":
			c.State, c.Up, c.Ready = plan.Running, does == "up" || does == "ready", does == "ready"
			c.Starting, c.Warned = does == "starting", does == "warned"
			if does == "sick" {
				c.Sick = "a probe failed"
			}
		case "created":
			c.State = plan.Created
		case "unknown":
			c.State = plan.Unknown
		default:
			does, c.Probed = strings.CutSuffix(does, "probed")
			code, times, again := strings.Cut(does, "x")
			n, err := strconv.Atoi(code)
			if err != nil {
				t.Fatalf("%q: %v", word, err)
			}
			c.State, c.ExitCode, c.Finished, c.Crashes = plan.Exited, int32(n), now, 1
			if again {
				c.Crashes, _ = strconv.Atoi(times)
			}
		}
	}
	return o
}

// told writes a plan: waves with "|" between them, "RunSandbox3" with the attempt
// that is made.
func told(p plan.Plan) string {
	var out []string
	wave := 0
	for _, a := range p.Actions {
		if a.Wave != wave {
			out, wave = append(out, "|"), a.Wave
		}
		word := string(a.Verb)
		switch a.Verb {
		case plan.RunSandbox:
			word += strconv.Itoa(int(a.Attempt))
		case plan.Start:
			word += " " + a.Container + strconv.Itoa(int(a.Attempt))
		default:
			word += " " + a.Container
		}
		out = append(out, strings.TrimSpace(word))
	}
	return strings.Join(out, " ")
}

func TestNext(t *testing.T) {
	never, onFailure := policy(corev1.RestartPolicyNever), policy(corev1.RestartPolicyOnFailure)
	const restart, restartAll = corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers
	const in, notIn = corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn
	for _, tt := range []struct {
		name  string
		pod   *corev1.Pod
		seen  string
		want  string
		phase corev1.PodPhase
	}{
		{"a new pod", wanted("a b"), "", "RunSandbox0 | Start a0 Start b0", "Pending"},
		{"a new pod with init containers", wanted("i1 i2 a"), "", "RunSandbox0 | Start i10", "Pending"},
		{"all is well", wanted("a b"), "sandbox a:up b:up", "", "Running"},
		{"one is missing", wanted("a b"), "sandbox a:up", "Start b0", "Pending"},

		{"init, the first runs", wanted("i1 i2 a"), "sandbox i1:running", "", "Pending"},
		{"init, the second", wanted("i1 i2 a"), "sandbox i1:0", "Start i20", "Pending"},
		{"init, done", wanted("i1 i2 a"), "sandbox i1:0 i2:0", "Start a0", "Pending"},
		{"init, failed", wanted("i1 a"), "sandbox i1:1", "Start i15", "Pending"},
		{"init, fails again and again", wanted("i1 a"), "sandbox i1:1x3", "", "Pending"},
		{"init, failed for good", wanted("i1 a", never), "sandbox i1:1", "StopSandbox", "Failed"},
		{"init, removed by the garbage collector", wanted("i1 a"), "sandbox a:up", "", "Running"},
		{"init, never started", wanted("i1 a"), "sandbox i1:created", "Start i14", "Pending"},

		{"sidecar, first", wanted("s1 i1 a"), "sandbox", "Start s10", "Pending"},
		{"sidecar, not up yet", wanted("s1 i1 a"), "sandbox s1:running", "", "Pending"},
		{"sidecar, up", wanted("s1 i1 a"), "sandbox s1:up", "Start i10", "Pending"},
		{"sidecar, and init is done", wanted("s1 i1 a"), "sandbox s1:up i1:0", "Start a0", "Pending"},
		{"sidecar crashes during init", wanted("s1 i1 a"), "sandbox s1:1 i1:running", "Start s15", "Pending"},
		{"sidecar crashes later", wanted("s1 a"), "sandbox s1:0 a:up", "Start s15", "Running"},
		{"sidecar not up later blocks nobody", wanted("s1 a b"), "sandbox s1:running a:up b:1", "Start b5", "Running"},
		{"sidecars end after the others", wanted("s1 s2 a", onFailure), "sandbox s1:up s2:up a:0", "Stop s2 | Stop s1 | StopSandbox", "Succeeded"},
		{"a sidecar's failure is not the pod's", wanted("s1 a", never), "sandbox s1:1 a:0", "StopSandbox", "Succeeded"},

		{"crashed", wanted("a"), "sandbox a:1", "Start a5", "Running"},
		{"crashed before", wanted("a"), "sandbox a:1x2", "", "Running"},
		{"ended well, Always", wanted("a"), "sandbox a:0", "Start a5", "Running"},
		{"ended well, OnFailure", wanted("a", onFailure), "sandbox a:0", "StopSandbox", "Succeeded"},
		{"ended well for a probe, OnFailure", wanted("a", onFailure), "sandbox a:0probed", "Start a5", "Running"},
		{"ended well for a probe again, OnFailure", wanted("a", onFailure), "sandbox a:0x2probed", "", "Running"},
		{"ended well for a probe, Never", wanted("a", never), "sandbox a:0probed", "StopSandbox", "Succeeded"},
		{"ended for a probe, by a rule", wanted("a", ruled("a", restart, in, 3)), "sandbox a:3probed", "Start a5", "Running"},
		{"ended badly, OnFailure", wanted("a", onFailure), "sandbox a:1", "Start a5", "Running"},
		{"one of two ended well", wanted("a b", onFailure), "sandbox a:0 b:up", "", "Running"},
		{"ended badly, Never", wanted("a b", never), "sandbox a:1 b:0", "StopSandbox", "Failed"},
		{"ended, and the sandbox is stopped", wanted("a", never), "sandbox:gone a:0", "", "Succeeded"},
		{"nobody knows", wanted("a"), "sandbox a:unknown", "Stop a | Start a5", "Running"},
		{"created and never started", wanted("a"), "sandbox a:created", "Start a4", "Pending"},
		{"sick", wanted("a"), "sandbox a:sick", "Stop a", "Running"},
		{"two at once", wanted("a b c"), "sandbox a:sick b:unknown c:1", "Stop a Stop b Start c5 | Start b5", "Running"},

		{"the sandbox is lost", wanted("i1 s1 a"), "sandbox:gone i1:0 s1:137 a:137", "StopSandbox | RunSandbox3 | Start i15", "Running"},
		{"the sandbox is lost, Never", wanted("a b", never), "sandbox:gone a:137", "", "Failed"},
		{"the sandbox is lost, OnFailure", wanted("a b", onFailure), "sandbox:gone a:0 b:137", "StopSandbox | RunSandbox3 | Start b5", "Running"},
		{"the sandbox is lost under what runs", wanted("i1 s1 s2 a b e1", hooked("s1", "a")), "sandbox:gone i1:0 s1:up s2:up a:ready b:unknown e1:running", "Stop e1 Stop a Stop b PreStop s1 | Stop s2 | Stop s1 | StopSandbox | RunSandbox3 | Start i15", "Running"},
		{"the sandbox is lost under one that runs, OnFailure", wanted("a b", onFailure), "sandbox:gone a:0 b:up", "Stop b | StopSandbox | RunSandbox3 | Start b5", "Running"},
		{"the sandbox is removed under what runs", wanted("a"), "a@old:up", "Stop a | RunSandbox0 | Start a5", "Running"},
		{"the sandbox is lost under what runs, Never", wanted("a", never), "sandbox:gone a:up", "Stop a", "Failed"},
		{"the sandbox is lost before anything ran, Never", wanted("a", never), "sandbox:gone", "StopSandbox | RunSandbox3 | Start a0", "Pending"},
		{"in the new sandbox", wanted("i1 a"), "sandbox i1@old:0 a@old:137", "Start i15", "Running"},

		{"rule, restart", wanted("a", never, ruled("a", restart, in, 42)), "sandbox a:42", "Start a5", "Running"},
		{"rule, another code", wanted("a", never, ruled("a", restart, in, 42)), "sandbox a:1", "StopSandbox", "Failed"},
		{"rule, not in", wanted("a", never, ruled("a", restart, notIn, 0)), "sandbox a:7", "Start a5", "Running"},
		{"rule, the container's own policy", wanted("a b", ruled("a", restart, in, 42)), "sandbox a:1 b:up", "", "Running"},
		{"rule, everything", wanted("i1 s1 a b", never, ruled("a", restartAll, in, 42)), "sandbox i1:0 s1:up a:42 b:up", "Stop b | Stop s1 | Remove i1 Remove s1 Remove b | Remove a", "Running"},
		{"rule, everything, for two of them", wanted("i1 a b c", never, ruled("a", restartAll, in, 42), ruled("c", restartAll, in, 7)), "sandbox i1:0 a:42 b:1 c:7", "Remove i1 Remove b | Remove a Remove c", "Running"},
		{"rule, everything, and an ephemeral container", wanted("a b e1", never, ruled("a", restartAll, in, 42)), "sandbox a:42 b:up e1:running", "Stop b | Remove b | Remove a", "Running"},
		{"rule, everything, again and again", wanted("i1 s1 a b", never, ruled("a", restartAll, in, 42)), "sandbox i1:0 s1:up a:42x2 b:up", "Stop b | Stop s1", "Running"},
		{"rule, the pod has its sandbox though its policy is Never", wanted("a", never, ruled("a", restart, in, 137)), "sandbox:gone a:137", "StopSandbox | RunSandbox3 | Start a5", "Running"},

		{"postStart, those after it wait", wanted("a b c", hooked("b")), "sandbox", "Start a0 Start b0", "Pending"},
		{"postStart, it runs", wanted("a b c", hooked("b")), "sandbox a:up b:starting", "", "Pending"},
		{"postStart, it has ended", wanted("a b c", hooked("b")), "sandbox a:up b:up", "Start c0", "Pending"},
		{"postStart, it has failed", wanted("a b c", hooked("b")), "sandbox a:up b:sick", "Stop b Start c0", "Pending"},
		{"postStart, its container has ended", wanted("a b c", hooked("b")), "sandbox a:up b:1", "Start b5", "Pending"},
		{"postStart, of a restart holds nobody", wanted("a b c", hooked("a")), "sandbox a:starting b:1 c:up", "Start b5", "Running"},
		{"postStart, of a sidecar", wanted("s1 i1 a", hooked("s1")), "sandbox s1:starting", "", "Pending"},
		{"postStart, of a sidecar has ended", wanted("s1 i1 a", hooked("s1")), "sandbox s1:up", "Start i10", "Pending"},
		{"postStart, in a new sandbox", wanted("a b", hooked("a")), "sandbox:gone a:137 b:137", "StopSandbox | RunSandbox3 | Start a5", "Running"},

		{"sidecars with hooks are warned", wanted("s1 s2 a", onFailure, hooked("s1", "a")), "sandbox s1:up s2:up a:0", "PreStop s1 | Stop s2 | Stop s1 | StopSandbox", "Succeeded"},
		{"sidecars with hooks are warned once", wanted("s1 s2 a", onFailure, hooked("s1", "s2")), "sandbox s1:warned s2:warned a:0", "Stop s2 | Stop s1 | StopSandbox", "Succeeded"},

		{"ephemeral", wanted("a e1"), "sandbox a:up", "Start e10", "Running"},
		{"ephemeral, ended", wanted("a e1"), "sandbox a:up e1:1", "", "Running"},
		{"ephemeral, created and never started", wanted("a e1"), "sandbox a:up e1:created", "Start e14", "Running"},
		{"ephemeral, during init", wanted("i1 a e1"), "sandbox i1:running", "Start e10", "Pending"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			input := plan.Input{Pod: tt.pod, Observed: seen(t, tt.seen), Now: now}
			before := fmt.Sprintf("%+v %+v", tt.pod, input.Observed.Sandbox)
			got := plan.Next(input)
			if told(got) != tt.want || got.Phase != tt.phase {
				t.Errorf("%s, phase %s; want %s, phase %s", told(got), got.Phase, tt.want, tt.phase)
			}
			if over := strings.HasPrefix(tt.name, "rule, everything"); (got.StartsOver == "a") != over || !over && got.StartsOver != "" {
				t.Errorf("it starts over because of %q", got.StartsOver)
			}
			if again := plan.Next(input); !reflect.DeepEqual(got, again) {
				t.Errorf("another answer to the same question: %+v, then %+v", got, again)
			}
			if after := fmt.Sprintf("%+v %+v", tt.pod, input.Observed.Sandbox); after != before {
				t.Errorf("the question has changed: %s, then %s", before, after)
			}
		})
	}
}

func TestEnding(t *testing.T) {
	pod := wanted("i1 s1 s2 a b e1")
	for name, tt := range map[string]struct {
		seen, want string
		phase      corev1.PodPhase
	}{
		"in order":             {"sandbox i1:0 s1:up s2:up a:up b:up e1:running", "Stop e1 Stop a Stop b | Stop s2 | Stop s1 | StopSandbox", "Running"},
		"during init":          {"sandbox i1:running", "Stop i1 | StopSandbox", "Pending"},
		"sidecars are left":    {"sandbox s1:up s2:up a:0 b:1", "Stop s2 | Stop s1 | StopSandbox", "Failed"},
		"nothing is left":      {"sandbox:gone s1:0 s2:0 a:0 b:0", "", "Succeeded"},
		"nothing ever was":     {"", "", "Pending"},
		"what nobody knows":    {"sandbox a:unknown", "Stop a | StopSandbox", "Pending"},
		"nothing is restarted": {"sandbox a:1 b:up", "Stop b | StopSandbox", "Running"},
	} {
		t.Run(name, func(t *testing.T) {
			got := plan.Next(plan.Input{Pod: pod, Observed: seen(t, tt.seen), Now: now, Ending: "it was deleted"})
			if told(got) != tt.want || got.Phase != tt.phase {
				t.Errorf("%s, phase %s; want %s, phase %s", told(got), got.Phase, tt.want, tt.phase)
			}
		})
	}
}

// TestWarning wants the preStop hooks of sidecars begun with those of the others,
// which are a part of their Stop.
func TestWarning(t *testing.T) {
	pod := wanted("s1 s2 a b", hooked("s1", "s2", "a"))
	in := plan.Input{Pod: pod, Observed: seen(t, "sandbox s1:up s2:warned a:up b:up"), Now: now, Ending: "it was deleted"}
	if got := told(plan.Next(in)); got != "Stop a Stop b PreStop s1 | Stop s2 | Stop s1 | StopSandbox" {
		t.Error(got)
	}
}

// TestGrace wants the grace period of a probe for what it ends, and the pod's else.
func TestGrace(t *testing.T) {
	short := int64(3)
	in := plan.Input{Pod: wanted("a b"), Observed: seen(t, "sandbox a:sick b:sick"), Now: now}
	in.Containers["a"].Grace = &short
	got := plan.Next(in).Actions
	if len(got) != 2 || got[0].Grace != &short || got[1].Grace != nil || got[0].Why != "a probe failed" {
		t.Errorf("%+v", got)
	}
	in.Ending = "it was deleted"
	for _, a := range plan.Next(in).Actions {
		if a.Grace != nil {
			t.Errorf("the whole pod ends, and %s has a time of its own", a.Container)
		}
	}
}

func TestDeadline(t *testing.T) {
	limit := int64(60)
	pod := wanted("a", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &limit })
	in := plan.Input{Pod: pod, Observed: seen(t, "sandbox a:up"), Now: now, Began: now.Add(-59 * time.Second)}
	if got := plan.Next(in); told(got) != "" || !got.Again.Equal(now.Add(time.Second)) || got.Phase != corev1.PodRunning {
		t.Errorf("before: %+v", got)
	}
	in.Now = now.Add(time.Second)
	if got := plan.Next(in); told(got) != "Stop a | StopSandbox" || got.Reason != plan.DeadlineExceeded || got.Phase != corev1.PodFailed {
		t.Errorf("after: %+v", got)
	}
}

func TestPauses(t *testing.T) {
	for crashes, want := range map[int]time.Duration{0: 0, 1: 0, 2: 10 * time.Second, 3: 20 * time.Second, 6: 160 * time.Second, 7: 5 * time.Minute, 1000: 5 * time.Minute} {
		if got := plan.Backoff(crashes, 0); got != want {
			t.Errorf("after %d: %s, want %s", crashes, got, want)
		}
	}
	for crashes, want := range map[int]time.Duration{1: 0, 2: 10 * time.Second, 3: 20 * time.Second, 4: 25 * time.Second, 9: 25 * time.Second} {
		if got := plan.Backoff(crashes, 25*time.Second); got != want {
			t.Errorf("after %d, at most 25s: %s, want %s", crashes, got, want)
		}
	}
	short := plan.Input{Pod: wanted("a"), Observed: seen(t, "sandbox a:1x3"), Now: now.Add(2 * time.Second), LongestPause: 3 * time.Second}
	if got := plan.Next(short); !got.Waiting["a"].Until.Equal(now.Add(3*time.Second)) || got.Waiting["a"].Pause != 3*time.Second {
		t.Errorf("%+v", got)
	}
	in := plan.Input{Pod: wanted("i1 a b"), Observed: seen(t, "sandbox i1:0 a:1x3 b:1x2"), Now: now.Add(9 * time.Second)}
	got := plan.Next(in)
	if told(got) != "" || !got.Again.Equal(now.Add(10*time.Second)) || got.Waiting["a"].Reason != plan.CrashLoopBackOff || !got.Waiting["a"].Until.Equal(now.Add(20*time.Second)) {
		t.Errorf("during the pause: %+v", got)
	}
	in.Now = now.Add(10 * time.Second)
	if got := plan.Next(in); told(got) != "Start b5" || !got.Again.Equal(now.Add(20*time.Second)) {
		t.Errorf("after b's: %+v", got)
	}
	in.Now = now.Add(-time.Hour) // the clock was set back
	if got := plan.Next(in); told(got) != "Start a5 Start b5" {
		t.Errorf("with the clock set back: %q %+v", told(got), got)
	}
}

func TestChanges(t *testing.T) {
	size := func(cpu, memory string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}
	}
	sized := func(with corev1.ResourceRequirements, restarting ...corev1.ResourceName) *corev1.Pod {
		return wanted("a", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = with
			for _, name := range restarting {
				p.Spec.Containers[0].ResizePolicy = append(p.Spec.Containers[0].ResizePolicy, corev1.ContainerResizePolicy{ResourceName: name, RestartPolicy: corev1.RestartContainer})
			}
		})
	}
	has := size("1", "1Gi")
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		hash string
		want string
	}{
		"nothing":                          {sized(size("1000m", "1024Mi")), "h", ""},
		"the image":                        {sized(has), "other", "Stop a | Start a5"},
		"nobody knows the hash":            {sized(has), "", ""},
		"cpu, in place":                    {sized(size("2", "1Gi"), corev1.ResourceMemory), "h", "Resize a"},
		"memory, by a restart":             {sized(size("1", "2Gi"), corev1.ResourceMemory), "h", "Stop a | Start a5"},
		"both, and one asks for a restart": {sized(size("2", "2Gi"), corev1.ResourceCPU), "h", "Stop a | Start a5"},
	} {
		t.Run(name, func(t *testing.T) {
			o := seen(t, "sandbox a:up")
			o.Containers["a"].Hash, o.Containers["a"].Resources = tt.hash, &has
			got := plan.Next(plan.Input{Pod: tt.pod, Observed: o, Now: now, Hash: func(*corev1.Container) string { return "h" }})
			if told(got) != tt.want {
				t.Errorf("%s, want %s", told(got), tt.want)
			}
		})
	}
}

// A container waits for its next attempt, but not with another definition.
func TestChangedWhilePaused(t *testing.T) {
	for hash, want := range map[string]string{"h": "", "other": "Start a5"} {
		o := seen(t, "sandbox a:1x5")
		o.Containers["a"].Hash = hash
		got := plan.Next(plan.Input{Pod: wanted("a"), Observed: o, Now: now, Hash: func(*corev1.Container) string { return "h" }})
		if told(got) != want || got.Again.IsZero() != (want != "") {
			t.Errorf("made with %q: %s, and again at %s; want %s", hash, told(got), got.Again, want)
		}
	}
}

// FuzzNext looks for questions whose answers never come to an end: each plan is
// carried out as if by a perfect runtime, until there is nothing left to do.
func FuzzNext(f *testing.F) {
	f.Add("i1 s1 a b", "sandbox i1:0 s1:up a:1x5 b:up", uint8(0))
	f.Add("s1 s2 a e1", "sandbox:gone a:137 e1:0", uint8(1))
	f.Add("i1 i2 a", "i1:1", uint8(2))
	f.Fuzz(func(t *testing.T, spec, words string, policies uint8) {
		if len(spec) > 60 || len(words) > 120 || !sound(spec, words) {
			return
		}
		pod := wanted(spec, policy([]corev1.RestartPolicy{"Always", "OnFailure", "Never"}[policies%3]), hooked("a", "s1", "s2"))
		in := plan.Input{Pod: pod, Observed: seen(t, words), Now: now}
		for range 200 {
			p := plan.Next(in)
			if len(p.Actions) == 0 && p.Again.IsZero() {
				return
			}
			if len(p.Actions) == 0 {
				in.Now = p.Again
			}
			for _, a := range p.Actions {
				perform(&in, a)
			}
			if p.Phase == corev1.PodRunning && settled(in) {
				return
			}
		}
		t.Fatalf("after 200 plans there is still something to do: %s", told(plan.Next(in)))
	})
}

// sound says that the words of a fuzzer make sense to wanted and seen.
func sound(spec, words string) bool {
	names := strings.Fields(spec)
	for _, n := range names {
		if strings.Trim(n, "iseabc123") != "" {
			return false
		}
	}
	slices.Sort(names)
	if len(slices.Compact(slices.Clone(names))) != len(names) || len(names) == 0 {
		return false
	}
	for word := range strings.FieldsSeq(words) {
		name, does, _ := strings.Cut(word, ":")
		name, _, _ = strings.Cut(name, "@")
		if word == "sandbox" || word == "sandbox:gone" {
			continue
		}
		if !slices.Contains(names, name) {
			return false
		}
		switch does {
		case "up", "ready", "running", "starting", "warned", "sick", "created", "unknown", "0", "1", "1x3", "137", "0x7":
		default:
			return false
		}
	}
	return true
}

// perform does what a runtime does whose containers all start, init containers
// end well at once, and others run on.
func perform(in *plan.Input, a plan.Action) {
	got := in.Containers[a.Container]
	switch a.Verb {
	case plan.RunSandbox:
		in.Sandbox = &plan.Sandbox{ID: fmt.Sprint("box", a.Attempt), Attempt: a.Attempt, Ready: true}
	case plan.StopSandbox:
		in.Sandbox.Ready = false
		for _, c := range in.Containers {
			if c.State != plan.Exited {
				c.State, c.ExitCode, c.Finished, c.Crashes = plan.Exited, 137, in.Now, c.Crashes+1
			}
		}
	case plan.Start:
		in.Containers[a.Container] = &plan.Container{ID: "new", Sandbox: in.Sandbox.ID, Attempt: a.Attempt, State: plan.Running, Up: true}
		if a.Container[0] == 'i' {
			in.Containers[a.Container].State, in.Containers[a.Container].Finished = plan.Exited, in.Now
		}
	case plan.PreStop:
		got.Warned = true
	case plan.Stop:
		got.State, got.ExitCode, got.Finished, got.Sick, got.Crashes = plan.Exited, 143, in.Now, "", got.Crashes+1
	case plan.Remove:
		delete(in.Containers, a.Container)
	case plan.Resize:
	}
}

func settled(in plan.Input) bool { return len(plan.Next(in).Actions) == 0 }

// TestRestarts wants what runs again for certain; TestNext has the rest.
func TestRestarts(t *testing.T) {
	rule := func(action corev1.ContainerRestartRuleAction) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
				Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
			}}
		}
	}
	policy := func(is corev1.RestartPolicy) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.RestartPolicy = is }
	}
	for _, tt := range []struct {
		pod       *corev1.Pod
		code      int32
		want, all bool
	}{
		{wanted("a"), 0, true, false},
		{wanted("a", policy("OnFailure")), 0, false, false},
		{wanted("a", policy("OnFailure")), 1, true, false},
		{wanted("a", policy("Never")), 1, false, false},
		{wanted("a", policy("Never"), rule("Restart")), 42, true, false},
		{wanted("a", policy("Never"), rule("Restart")), 1, false, false},
		{wanted("a", policy("Never"), rule("RestartAllContainers")), 42, true, true},
	} {
		if got := plan.Restarts(tt.pod, &tt.pod.Spec.Containers[0], tt.code); got != tt.want {
			t.Errorf("%s after %d: %v", tt.pod.Spec.RestartPolicy, tt.code, got)
		}
		if got := plan.RestartsAll(tt.pod); got != tt.all {
			t.Errorf("%s: all: %v", tt.pod.Spec.RestartPolicy, got)
		}
	}
}

// TestCreated starts what was made, unless the runtime has refused that, or it is another thing by now.
func TestCreated(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}}
	for _, tt := range []struct {
		hash    string
		refused bool
		want    plan.Action
	}{
		{"now", false, plan.Action{Verb: plan.Start, Container: "a", ID: "id", Attempt: 4}},
		{"", false, plan.Action{Verb: plan.Start, Container: "a", ID: "id", Attempt: 4}},
		{"before", false, plan.Action{Verb: plan.Start, Container: "a", Attempt: 5, Why: "it was created and never started"}},
		{"now", true, plan.Action{Verb: plan.Start, Container: "a", Attempt: 5, Why: "it was created and never started"}},
	} {
		in := plan.Input{Pod: p, Now: time.Now(), Hash: func(*corev1.Container) string { return "now" }}
		in.Sandbox = &plan.Sandbox{ID: "box", Ready: true}
		in.Containers = map[string]*plan.Container{"a": {ID: "id", Sandbox: "box", Attempt: 4, State: plan.Created, Hash: tt.hash, Refused: tt.refused}}
		if got := plan.Next(in).Actions; len(got) != 1 || got[0] != tt.want {
			t.Errorf("made of %q, refused %t: %+v, want %+v", tt.hash, tt.refused, got, tt.want)
		}
	}
	// An ephemeral one has one attempt alone, and is not made anew.
	for refused, want := range map[bool]int{false: 1, true: 0} {
		in := plan.Input{Pod: wanted("a e"), Now: time.Now()}
		in.Sandbox = &plan.Sandbox{ID: "box", Ready: true}
		in.Containers = map[string]*plan.Container{
			"a": {ID: "a", Sandbox: "box", State: plan.Running, Up: true}, "e": {ID: "e", Sandbox: "box", State: plan.Created, Refused: refused},
		}
		if got := plan.Next(in).Actions; len(got) != want || want > 0 && got[0] != (plan.Action{Verb: plan.Start, Container: "e", ID: "e"}) {
			t.Errorf("an ephemeral one, refused %t: %+v", refused, got)
		}
	}
}
