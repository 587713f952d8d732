package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/handlers"
	"fairlead.run/internal/node/manifest"
)

// pod writes a manifest. Each container is "name: argument".
func pod(name, policy string, containers ...string) string {
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  restartPolicy: " + policy + "\n  containers:\n"
	for _, c := range containers {
		n, arg, _ := strings.Cut(c, ": ")
		text += "  - {name: " + n + ", image: 'i:1', args: ['" + arg + "']}\n"
	}
	return text + "---\n"
}

func TestCompletes(t *testing.T) {
	r := newRun(t, newFake(), pod("a", "Never", "one: exit 0", "two: exit 0"))
	if err := r.Start(t.Context(), r.plans); err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); err != nil {
		t.Error(err)
	}
	for _, s := range r.fake.sandboxes {
		if !proto.Equal(s.Config.Metadata, r.fake.pulledFor) {
			t.Errorf("the image was pulled for %v, and the pod is %v", r.fake.pulledFor, s.Config.Metadata)
		}
	}
	s := r.Statuses()[0]
	if s.Phase != Succeeded || s.Handler != "runc" || s.Addresses[0] != "10.9.8.7" {
		t.Errorf("%+v", s)
	}
	if err := r.Stop(t.Context(), nil); err != nil {
		t.Error(err)
	}
	slices.Sort(r.seen.lines)
	if !slices.Equal(r.seen.lines, []string{"a/one: one says hello 0", "a/two: two says hello 0"}) {
		t.Errorf("lines %q", r.seen.lines)
	}
	if left := r.left(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestFails(t *testing.T) {
	r := newRun(t, newFake(), pod("a", "Never", "one: exit 3")+pod("b", "Never", "one: exit 0"))
	if err := r.Start(t.Context(), r.plans); err != nil {
		t.Fatal(err)
	}
	err := r.Run(t.Context())
	if !errors.Is(err, ErrPodFailed) || !strings.Contains(err.Error(), "default/a") || strings.Contains(err.Error(), "default/b") {
		t.Error(err)
	}
	if m := r.Statuses()[0].Message; m != "container one ended with exit code 3" {
		t.Errorf("message %q", m)
	}
	if err := r.Stop(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestHalfAStartIsUndone fails at each step of the second pod, and wants
// nothing left of the first.
func TestHalfAStartIsUndone(t *testing.T) {
	init := pod("b", "Never", "bad: run") + "\n"
	for _, step := range []string{"pull j:1", "sandbox b", "create bad", "start bad", "create setup", "start setup"} {
		fake := newFake()
		fake.failOn[step] = errors.New("it broke")
		text := pod("a", "Never", "good: run") + strings.Replace(init, "  containers:\n",
			"  initContainers: [{name: setup, image: 'j:1', args: [exit 0]}]\n  containers:\n", 1)
		r := newRun(t, fake, text)
		err := r.Start(t.Context(), r.plans)
		if err == nil || !strings.Contains(err.Error(), "it broke") || !strings.Contains(err.Error(), "t.yaml:") {
			t.Errorf("%s: %v", step, err)
		}
		if left := r.left(t); len(left) > 0 {
			t.Errorf("%s: left %q", step, left)
		}
	}
}

func TestInitContainers(t *testing.T) {
	with := func(policy string, inits ...string) string {
		text := "  initContainers:\n"
		for i, c := range inits {
			text += "  - {name: init" + string(rune('0'+i)) + ", image: 'i:1', args: ['" + c + "']}\n"
		}
		return strings.Replace(pod("a", policy, "main: exit 0"), "  containers:\n", text+"  containers:\n", 1)
	}
	r := newRun(t, newFake(), with("Never", "exit 0", "exit 4"))
	err := r.Start(t.Context(), r.plans)
	if err == nil || !strings.Contains(err.Error(), "init container init1: ended with exit code 4") {
		t.Errorf("a failed init container: %v", err)
	}
	if r.fake.started["main"] != 0 || r.fake.started["init0"] != 1 {
		t.Errorf("started %v", r.fake.started)
	}
	// By default it is started again and again; the context ends it.
	r = newRun(t, newFake(), with("Always", "exit 4"))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := r.Start(ctx, r.plans); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("endless init container: %v", err)
	}
	if r.fake.started["init0"] != 2 { // at once, and then after 10 s
		t.Errorf("started %v", r.fake.started)
	}
	if left := r.left(t); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

func TestRestarts(t *testing.T) {
	r := newRun(t, newFake(), pod("a", "OnFailure", "bad: exit 1", "good: exit 0")+pod("b", "Always", "good: exit 0"))
	if err := r.Start(t.Context(), r.plans); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 1300*time.Millisecond)
	defer cancel()
	if err := r.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	a, b := r.Statuses()[0], r.Statuses()[1]
	if a.Restarts != 1 || b.Restarts != 1 || a.Phase != Running {
		t.Errorf("%+v %+v", a, b)
	}
	if !strings.Contains(a.Message, "restarted after a pause of 10s") {
		t.Errorf("message %q", a.Message)
	}
	if err := r.Stop(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if !slices.Contains(r.seen.lines, "a/bad: bad says hello 1") {
		t.Errorf("the log of the second attempt is missing: %q", r.seen.lines)
	}
}

// withInit puts init containers before those of a manifest.
func withInit(text string, inits ...string) string {
	lines := "  initContainers:\n"
	for _, c := range inits {
		lines += "  - " + c + "\n"
	}
	return strings.Replace(text, "  containers:\n", lines+"  containers:\n", 1)
}

const sidecar = "{name: side%d, image: 'i:1', args: [run], restartPolicy: Always}"

// TestSidecars wants them before the others, beside them, and after them.
func TestSidecars(t *testing.T) {
	r := newRun(t, newFake(), withInit(pod("a", "Never", "main: exit 0"), fmt.Sprintf(sidecar, 1), "{name: init, image: 'i:1', args: [exit 0]}", fmt.Sprintf(sidecar, 2)))
	if err := r.Start(t.Context(), r.plans); err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); err != nil {
		t.Error(err)
	}
	if s := r.Statuses()[0]; s.Phase != Succeeded || s.Total != 3 || s.Message != "" {
		t.Errorf("%+v", s)
	}
	if want := []string{"side2", "side1"}; !slices.Equal(r.fake.stopped, want) {
		t.Errorf("stopped %q, want %q", r.fake.stopped, want)
	}
	if err := r.Stop(t.Context(), nil); err != nil {
		t.Error(err)
	}

	r = newRun(t, newFake(), withInit(pod("a", "Always", "main: run"), fmt.Sprintf(sidecar, 1)))
	if err := r.Start(t.Context(), r.plans); err != nil {
		t.Fatal(err)
	}
	if s := r.Statuses()[0]; s.Ready != 2 {
		t.Errorf("%+v", s)
	}
	if err := r.Stop(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if want := []string{"main", "side1"}; !slices.Equal(r.fake.stopped, want) {
		t.Errorf("stopped %q, want %q", r.fake.stopped, want)
	}
	if left := r.left(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestLostSandbox wants another one, with everything in it from the beginning.
func TestLostSandbox(t *testing.T) {
	r := newRun(t, newFake(), withInit(pod("a", "Always", "main: run"), "{name: init, image: 'i:1', args: [exit 0]}"))
	if err := r.Start(t.Context(), r.plans); err != nil {
		t.Fatal(err)
	}
	first := r.Statuses()[0].ID
	r.fake.mu.Lock()
	r.fake.lose(first)
	r.fake.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	for again := false; !again && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		r.fake.mu.Lock()
		again = r.fake.started["main"] == 2 && len(r.fake.sandboxes) == 1
		r.fake.mu.Unlock()
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if r.fake.started["init"] != 2 || r.fake.started["main"] != 2 || len(r.fake.sandboxes) != 1 {
		t.Errorf("started %v, sandboxes %d", r.fake.started, len(r.fake.sandboxes))
	}
	for _, s := range r.fake.sandboxes {
		if s.Config.Metadata.Attempt != 1 {
			t.Errorf("the new sandbox is attempt %d", s.Config.Metadata.Attempt)
		}
	}
	if err := r.Stop(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if left := r.left(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestRules wants a container that ends in a certain way to restart itself, or
// all of them.
func TestRules(t *testing.T) {
	for action, want := range map[string]map[string]int{
		"Restart":              {"main": 2, "other": 1},
		"RestartAllContainers": {"main": 2, "other": 2},
	} {
		rules := "restartPolicy: Never, restartPolicyRules: [{action: " + action + ", exitCodes: {operator: In, values: [42]}}], name: main"
		r := newRun(t, newFake(), strings.Replace(pod("a", "Never", "main: exit 42", "other: run"), "name: main", rules, 1))
		if err := r.Start(t.Context(), r.plans); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		for begun := false; !begun && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			r.fake.mu.Lock()
			begun = r.fake.started["main"] >= want["main"] && r.fake.started["other"] >= want["other"]
			r.fake.mu.Unlock()
		}
		cancel()
		<-ended
		if !maps.Equal(r.fake.started, want) && action == "Restart" {
			t.Errorf("%s: started %v, want %v", action, r.fake.started, want)
		}
		if err := r.Stop(t.Context(), nil); err != nil {
			t.Error(err)
		}
		if left := r.left(t); len(left) > 0 {
			t.Errorf("%s: left %q", action, left)
		}
	}
}

// A pod to which nothing happens costs no call, and what happens to one is seen
// without its asking.
func TestNothingIsAskedAtRest(t *testing.T) {
	r := newRun(t, newFake(), pod("a", "Always", "main: run")+pod("b", "Always", "main: run"))
	if err := r.Start(t.Context(), r.plans); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	lists := func() int {
		r.fake.mu.Lock()
		defer r.fake.mu.Unlock()
		return r.fake.lists
	}
	// What polls never comes to rest for so long.
	for before := -1; ctx.Err() == nil && before != lists(); time.Sleep(2 * time.Second) {
		before = lists()
	}
	if ctx.Err() != nil {
		t.Errorf("after a minute %d lists, and more", lists())
	}
	r.fake.mu.Lock()
	for _, c := range r.fake.containers {
		c.state, c.code, c.ended = runtimeapi.ContainerState_CONTAINER_EXITED, 1, time.Now()
	}
	r.fake.mu.Unlock()
	for again := false; !again && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		r.fake.mu.Lock()
		again = r.fake.started["main"] == 4
		r.fake.mu.Unlock()
	}
	cancel()
	<-ended
	if r.fake.started["main"] != 4 {
		t.Errorf("started %v", r.fake.started)
	}
	if err := r.Stop(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestDeadline(t *testing.T) {
	r := newRun(t, newFake(), strings.Replace(pod("a", "Always", "main: run"), "spec:\n", "spec:\n  activeDeadlineSeconds: 1\n", 1))
	if err := r.Start(t.Context(), r.plans); err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); !errors.Is(err, ErrPodFailed) {
		t.Error(err)
	}
	if s := r.Statuses()[0]; s.Phase != Failed || !strings.Contains(s.Message, "DeadlineExceeded") {
		t.Errorf("%+v", s)
	}
	if err := r.Stop(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestGrace wants the pod's grace period, and its end when now is closed.
func TestGrace(t *testing.T) {
	fake := newFake()
	fake.stubborn = true
	text := strings.Replace(pod("a", "Always", "one: run"), "spec:\n", "spec:\n  terminationGracePeriodSeconds: 77\n", 1)
	r := newRun(t, fake, text)
	if err := r.Start(t.Context(), r.plans); err != nil {
		t.Fatal(err)
	}
	now := make(chan struct{})
	time.AfterFunc(100*time.Millisecond, func() { close(now) })
	begin := time.Now()
	if err := r.Stop(t.Context(), now); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 5*time.Second || took < 100*time.Millisecond {
		t.Errorf("stopped after %s", took)
	}
	if !slices.Equal(fake.stops, []int64{77, 0}) {
		t.Errorf("timeouts %v", fake.stops)
	}
	if left := r.left(t); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

func TestNamesAreTaken(t *testing.T) {
	fake := newFake()
	first := newRun(t, fake, pod("a", "Always", "one: run"))
	if err := first.Start(t.Context(), first.plans); err != nil {
		t.Fatal(err)
	}
	second := newRun(t, fake, pod("a", "Always", "one: run"))
	err := second.Start(t.Context(), second.plans)
	if !errors.Is(err, errdefs.ErrAlreadyExists) || !strings.Contains(err.Error(), "fairlead rm default/a") {
		t.Error(err)
	}
	if len(fake.sandboxes) != 1 {
		t.Error("the refusal touched the other run's pod")
	}
	if err := first.Stop(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestPullPolicy(t *testing.T) {
	one := func(fake *fakeCRI, policy, extra string) (*run, error) {
		text := strings.Replace(pod("a", "Never", "c: exit 0"), "image: 'i:1'", "image: 'i:1', imagePullPolicy: "+policy, 1)
		r := newRun(t, fake, strings.Replace(text, "---\n", extra+"---\n", 1))
		err := r.Start(t.Context(), r.plans)
		if err == nil {
			err = r.Stop(t.Context(), nil)
		}
		return r, err
	}
	fake := newFake()
	if _, err := one(fake, "Never", ""); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("Never and absent: %v", err)
	}
	if _, err := one(fake, "IfNotPresent", ""); err != nil || len(fake.pulled) != 1 {
		t.Errorf("IfNotPresent and absent: %v, pulled %v", err, fake.pulled)
	}
	if _, err := one(fake, "IfNotPresent", ""); err != nil || len(fake.pulled) != 1 {
		t.Errorf("IfNotPresent and present: %v, pulled %v", err, fake.pulled)
	}
	if _, err := one(fake, "Always", ""); err != nil || len(fake.pulled) != 2 {
		t.Errorf("Always: %v, pulled %v", err, fake.pulled)
	}
	fake.failOn["pull i:1"] = errors.New("denied")
	if _, err := one(fake, "Always", ""); err == nil || !strings.Contains(err.Error(), "IfNotPresent would use it") {
		t.Errorf("a failed pull with a copy here: %v", err)
	}
	secret := "  imagePullSecrets: [{name: s}]\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\ntype: kubernetes.io/dockerconfigjson\nstringData:\n" +
		"  .dockerconfigjson: '{\"auths\":{\"https://index.docker.io/v1/\":{\"username\":\"u\",\"password\":\"right\"},\"other:5000\":{}}}'\n"
	if _, err := one(fake, "Always", secret); err != nil {
		t.Errorf("with a pull secret: %v", err)
	}
}

// The images of volumes that are mounted are pulled by their own policy, and
// mounted by the name that the runtime gave.
func TestPullsVolumes(t *testing.T) {
	text := strings.Replace(pod("a", "Never", "c: exit 0"), "image: 'i:1'", "image: 'i:1', volumeMounts: [{name: data, mountPath: /data, subPath: x}]", 1)
	const volumes = "  volumes: [{name: data, image: {reference: 'd:1', pullPolicy: POLICY}}, {name: idle, image: {reference: 'idle:1'}}]\n"
	try := func(fake *fakeCRI, policy string) error {
		r := newRun(t, fake, strings.Replace(text, "---\n", strings.Replace(volumes, "POLICY", policy, 1)+"---\n", 1))
		if err := r.Start(t.Context(), r.plans); err != nil {
			return err
		}
		for _, c := range fake.containers {
			m := c.config.Mounts[0]
			if m.Image.GetImage() != "d:1" || m.Image.GetUserSpecifiedImage() != "d:1" || !m.Readonly || m.ImageSubPath != "x" || m.HostPath != "" {
				t.Errorf("the mount: %v", m)
			}
		}
		return r.Stop(t.Context(), nil)
	}
	fake := newFake()
	if err := try(fake, "Never"); !errors.Is(err, errdefs.ErrNotFound) || !strings.Contains(err.Error(), "volume data: image d:1") || !strings.Contains(err.Error(), "pullPolicy is Never") {
		t.Errorf("Never and absent: %v", err)
	}
	fake = newFake()
	if err := try(fake, "IfNotPresent"); err != nil || len(fake.pulled) != 2 || !slices.Contains(fake.pulled, "d:1") {
		t.Errorf("IfNotPresent and absent: %v, pulled %v", err, fake.pulled)
	}
	if err := try(fake, "Always"); err != nil || len(fake.pulled) != 3 {
		t.Errorf("Always: %v, pulled %v", err, fake.pulled)
	}
}

// TestResolve holds that a class leads to its own handler or to a refusal.
func TestResolve(t *testing.T) {
	class := func(name, handler string) string {
		return "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: " + name + "}\nhandler: " + handler + "\noverhead: {podFixed: {memory: 1Mi}}\n---\n"
	}
	fake := newFake()
	set, err := handlers.List(t.Context(), fake.serve(t).Runtime)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, spec, want, handler string }{
		{"no class", "", "", ""},
		{"empty class", "runtimeClassName: ''", "", ""},
		{"runc", "runtimeClassName: native", "", "runc"},
		{"missing class", "runtimeClassName: nativ", `there is no RuntimeClass "nativ"; there are broken, native, sandboxed; did you mean native? (of the files given with -f)`, ""},
		{"missing handler", "runtimeClassName: sandboxed", `asks for the runtime handler "gvisor", which this machine does not have; the handlers here are runc (default)`, ""},
		{"broken handler", "runtimeClassName: broken", "which does not work on this machine: it fell over", ""},
		{"same overhead", "runtimeClassName: native\n  overhead: {memory: 1024Ki}", "", "runc"},
		{"other overhead", "runtimeClassName: native\n  overhead: {memory: 2Mi}", "spec.overhead: is memory 2Mi, and that of RuntimeClass native is memory 1Mi", ""},
		{"overhead alone", "overhead: {memory: 2Mi}", "spec.overhead: only a RuntimeClass", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := class("native", "runc") + class("sandboxed", "gvisor") + class("broken", "crun") +
				strings.Replace(pod("a", "Never", "c: run"), "spec:\n", "spec:\n  "+tt.spec+"\n", 1)
			o, err := manifest.Decode([]manifest.Source{{Name: "t.yaml", Data: []byte(text)}})
			if err != nil {
				t.Fatal(err)
			}
			plans, err := Resolve(set, o.Pods, o.Classes)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("got %v, want %q", err, tt.want)
				}
				return
			}
			if err != nil || plans[0].Handler != tt.handler {
				t.Errorf("%+v %v", plans, err)
			}
		})
	}
}
