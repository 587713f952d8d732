package foreground

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/fakeruntime"
	"fairlead.run/internal/node/handlers"
	"fairlead.run/internal/node/manifest"
)

func TestCompletes(t *testing.T) {
	s := newStage(t, fakeruntime.New(), manifestOf("a", "Never", "one: exit 0", "two: exit 0"))
	if err := s.Start(t.Context(), s.plans); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	for _, box := range s.fake.Sandboxes() {
		if want := s.fake.Images.LastPull().GetSandboxConfig().GetMetadata(); !proto.Equal(box.Metadata, want) {
			t.Errorf("the image was pulled for %v, and the pod is %v", want, box.Metadata)
		}
	}
	if got := s.Statuses()[0]; got.Phase != Succeeded || got.Handler != "runc" || got.Addresses[0] != fakeruntime.Address {
		t.Errorf("%+v", got)
	}
	s.end(t)
	slices.Sort(s.seen.lines)
	if !slices.Equal(s.seen.lines, []string{"a/one: one says hello 0", "a/two: two says hello 0"}) {
		t.Errorf("lines %q", s.seen.lines)
	}
}

func TestFails(t *testing.T) {
	s := newStage(t, fakeruntime.New(), manifestOf("a", "Never", "one: exit 3")+manifestOf("b", "Never", "one: exit 0"))
	if err := s.Start(t.Context(), s.plans); err != nil {
		t.Fatal(err)
	}
	err := s.Wait(t.Context())
	if !errors.Is(err, ErrPodFailed) || !strings.Contains(err.Error(), "default/a") || strings.Contains(err.Error(), "default/b") {
		t.Error(err)
	}
	if m := s.Statuses()[0].Message; m != "container one ended with exit code 3" {
		t.Errorf("message %q", m)
	}
	s.end(t)
}

// TestHalfAStartIsUndone fails at each step of the second pod, and wants nothing left of
// the first.
func TestHalfAStartIsUndone(t *testing.T) {
	text := manifestOf("a", "Never", "good: run") + withInit(manifestOf("b", "Never", "bad: run"), "{name: setup, image: 'j:1', args: [exit 0]}")
	for _, step := range []string{"pull j:1", "run b", "create b/bad", "start b/bad", "create b/setup", "start b/setup"} {
		fake := fakeruntime.New()
		fake.Fail(step, errors.New("it broke"))
		s := newStage(t, fake, text)
		err := s.Start(t.Context(), s.plans)
		if err == nil || !strings.Contains(err.Error(), "it broke") || !strings.Contains(err.Error(), "t.yaml:") {
			t.Errorf("%s: %v", step, err)
		}
		s.wantNothing(t)
	}
}

func TestInitContainers(t *testing.T) {
	const init = "{name: init%d, image: 'i:1', args: ['%s']}"
	s := newStage(t, fakeruntime.New(), withInit(manifestOf("a", "Never", "main: exit 0"), fmt.Sprintf(init, 0, "exit 0"), fmt.Sprintf(init, 1, "exit 4")))
	err := s.Start(t.Context(), s.plans)
	if err == nil || !strings.Contains(err.Error(), "init container init1: ended with exit code 4") {
		t.Errorf("a failed init container: %v", err)
	}
	if s.starts("a/main") != 0 || s.starts("a/init0") != 1 {
		t.Errorf("%q", s.fake.Calls("start"))
	}
	// By default it is started again and again; the context ends it.
	s = newStage(t, fakeruntime.New(), withInit(manifestOf("a", "Always", "main: exit 0"), fmt.Sprintf(init, 0, "exit 4")))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx, s.plans) }()
	const why = "container init0: ended with exit code 4; it is restarted after a pause of 10s"
	await(t, "the pause", func() bool { return s.seen.saw(why) }) // the first restart comes at once
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("endless init container: %v", err)
	}
	if s.starts("a/init0") != 2 {
		t.Errorf("%q", s.fake.Calls("start"))
	}
	s.wantNothing(t)
}

func TestRestarts(t *testing.T) {
	s := newStage(t, fakeruntime.New(), manifestOf("a", "OnFailure", "bad: exit 1", "good: exit 0")+manifestOf("b", "Always", "good: exit 0"))
	stop := s.runs(t)
	await(t, "the second ends", func() bool {
		a, b := s.Statuses()[0], s.Statuses()[1]
		return a.Restarts == 1 && b.Restarts == 1 && a.Phase == Running && strings.Contains(a.Message, "restarted after a pause of 10s")
	})
	if s.starts("a/good") != 1 || !s.seen.noted("pod default/a: container bad ended with exit code 1; restarting it") {
		t.Errorf("%q, notes %q", s.fake.Calls("start"), s.seen.notes)
	}
	stop()
	if !slices.Contains(s.seen.lines, "a/bad: bad says hello 0") || !slices.Contains(s.seen.lines, "a/bad: bad says hello 1") {
		t.Errorf("an attempt's log is missing: %q", s.seen.lines)
	}
}

// TestSidecars wants them counted among the containers that run on, and ended last.
func TestSidecars(t *testing.T) {
	const sidecar = "{name: side%d, image: 'i:1', args: [run], restartPolicy: Always}"
	s := newStage(t, fakeruntime.New(), withInit(manifestOf("a", "Never", "main: exit 0"), fmt.Sprintf(sidecar, 1), "{name: init, image: 'i:1', args: [exit 0]}", fmt.Sprintf(sidecar, 2)))
	if err := s.Start(t.Context(), s.plans); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if got := s.Statuses()[0]; got.Phase != Succeeded || got.Total != 3 || got.Message != "" {
		t.Errorf("%+v", got)
	}
	if got, want := s.fake.Calls("stop a/"), []string{"stop a/side2 in 30s", "stop a/side1 in 30s"}; !slices.Equal(got, want) {
		t.Errorf("stopped %q, want %q", got, want)
	}
	s.end(t)

	s = newStage(t, fakeruntime.New(), withInit(manifestOf("a", "Always", "main: run"), fmt.Sprintf(sidecar, 1)))
	if err := s.Start(t.Context(), s.plans); err != nil {
		t.Fatal(err)
	}
	await(t, "both", func() bool { return s.Statuses()[0].Ready == 2 })
	s.end(t)
	if got, want := s.fake.Calls("stop a/"), []string{"stop a/main in 30s", "stop a/side1 in 30s"}; !slices.Equal(got, want) {
		t.Errorf("stopped %q, want %q", got, want)
	}
}

// TestLostSandbox wants another one, with everything in it from the beginning, or the run
// failed where the policy is Never.
func TestLostSandbox(t *testing.T) {
	s := newStage(t, fakeruntime.New(), withInit(manifestOf("a", "Always", "main: run"), "{name: init, image: 'i:1', args: [exit 0]}"))
	stop := s.runs(t)
	s.fake.LoseSandbox("a")
	await(t, "another one", func() bool { return s.starts("a/main") == 2 && s.starts("a/init") == 2 && len(s.fake.Sandboxes()) == 1 })
	if n := s.fake.Sandboxes()[0].Metadata.Attempt; n != 1 {
		t.Errorf("the new sandbox is attempt %d", n)
	}
	stop()
}

func TestDeadline(t *testing.T) {
	s := newStage(t, fakeruntime.New(), strings.Replace(manifestOf("a", "Always", "main: run"), "spec:\n", "spec:\n  activeDeadlineSeconds: 1\n", 1))
	if err := s.Start(t.Context(), s.plans); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(t.Context()); !errors.Is(err, ErrPodFailed) {
		t.Error(err)
	}
	if got := s.Statuses()[0]; got.Phase != Failed || !strings.Contains(got.Message, "DeadlineExceeded") {
		t.Errorf("%+v", got)
	}
	s.end(t)
}

// TestGrace wants the pod's grace period, and its end when now is closed.
func TestGrace(t *testing.T) {
	fake := fakeruntime.New()
	fake.Stubborn()
	s := newStage(t, fake, strings.Replace(manifestOf("a", "Always", "one: run"), "spec:\n", "spec:\n  terminationGracePeriodSeconds: 3600\n", 1))
	if err := s.Start(t.Context(), s.plans); err != nil {
		t.Fatal(err)
	}
	now := make(chan struct{})
	go func() {
		await(t, "the grace period", func() bool { return len(fake.Calls("stop a/one in 3600s")) == 1 })
		close(now)
	}()
	if err := s.Stop(t.Context(), now); err != nil {
		t.Error(err)
	}
	if got := fake.Calls("stop a/"); !slices.Equal(got, []string{"stop a/one in 3600s", "stop a/one in 0s"}) {
		t.Errorf("%q", got)
	}
	s.wantNothing(t)
}

// TestCannotRemove says so in the end, and what is in the way.
func TestCannotRemove(t *testing.T) {
	fake := fakeruntime.New()
	s := newStage(t, fake, manifestOf("a", "Always", "one: run"))
	if err := s.Start(t.Context(), s.plans); err != nil {
		t.Fatal(err)
	}
	fake.Fail("remove sandbox a", errors.New("the disk is gone"))
	now := make(chan struct{})
	close(now)
	err := s.Stop(t.Context(), now)
	if err == nil || !strings.Contains(err.Error(), "t.yaml:1") || !strings.Contains(err.Error(), "the disk is gone") {
		t.Error(err)
	}
}

func TestNamesAreTaken(t *testing.T) {
	fake := fakeruntime.New()
	first := newStage(t, fake, manifestOf("a", "Always", "one: run"))
	if err := first.Start(t.Context(), first.plans); err != nil {
		t.Fatal(err)
	}
	second := newStage(t, fake, manifestOf("a", "Always", "one: run"))
	err := second.Start(t.Context(), second.plans)
	if !errors.Is(err, errdefs.ErrAlreadyExists) || !strings.Contains(err.Error(), "fairlead rm default/a") {
		t.Error(err)
	}
	if len(fake.Sandboxes()) != 1 {
		t.Error("the refusal touched the other run's pod")
	}
	first.end(t)
}

// TestTwoRuns leaves the pods of another run alone, whichever ends first.
func TestTwoRuns(t *testing.T) {
	fake := fakeruntime.New()
	first, second := newStage(t, fake, manifestOf("a", "Always", "one: run")), newStage(t, fake, manifestOf("b", "Always", "one: run"))
	for _, s := range []*stage{first, second} {
		if err := s.Start(t.Context(), s.plans); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Stop(t.Context(), nil); err != nil {
		t.Error(err)
	}
	fake.Exit("b/one", 1)
	await(t, "the restart", func() bool { return second.starts("b/one") == 2 })
	second.end(t)
}

// TestLeave leaves the pods, and neither restarts nor asks them any more.
func TestLeave(t *testing.T) {
	fake := fakeruntime.New()
	s := newStage(t, fake, cared("a", "Always", "readinessProbe: {exec: {command: [test]}, periodSeconds: 1}", ""))
	if err := s.Start(t.Context(), s.plans); err != nil {
		t.Fatal(err)
	}
	await(t, "a probe", func() bool { return strings.Contains(fake.Of("a/main"), "exec test") })
	s.Leave()
	before := fake.Of("a/main")
	fake.Exit("a/main", 1)
	time.Sleep(1200 * time.Millisecond) // longer than the period
	if after := fake.Of("a/main"); after != before || len(fake.Sandboxes()) != 1 {
		t.Errorf("%s, then %s", before, after)
	}
	if !slices.Equal(s.seen.lines, []string{"a/main: main says hello 0"}) {
		t.Errorf("%q", s.seen.lines)
	}
}

func TestPullPolicy(t *testing.T) {
	one := func(fake *fakeruntime.Runtime, policy, extra string) error {
		text := strings.Replace(manifestOf("a", "Never", "c: exit 0"), "image: 'i:1'", "image: 'i:1', imagePullPolicy: "+policy, 1)
		s := newStage(t, fake, strings.Replace(text, "---\n", extra+"---\n", 1))
		if err := s.Start(t.Context(), s.plans); err != nil {
			return err
		}
		return s.Stop(t.Context(), nil)
	}
	fake := fakeruntime.New()
	pulls := func() int { return len(fake.Calls("pull i:1")) }
	if err := one(fake, "Never", ""); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("Never and absent: %v", err)
	}
	if err := one(fake, "IfNotPresent", ""); err != nil || pulls() != 1 {
		t.Errorf("IfNotPresent and absent: %v, %d pulls", err, pulls())
	}
	if err := one(fake, "IfNotPresent", ""); err != nil || pulls() != 1 {
		t.Errorf("IfNotPresent and present: %v, %d pulls", err, pulls())
	}
	if err := one(fake, "Always", ""); err != nil || pulls() != 2 {
		t.Errorf("Always: %v, %d pulls", err, pulls())
	}
	fake.Images.Protect("i:1", "right")
	if err := one(fake, "Always", ""); err == nil || !strings.Contains(err.Error(), "IfNotPresent would use it") {
		t.Errorf("a failed pull with a copy here: %v", err)
	}
	secret := "  imagePullSecrets: [{name: s}]\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\ntype: kubernetes.io/dockerconfigjson\nstringData:\n" +
		"  .dockerconfigjson: '{\"auths\":{\"https://index.docker.io/v1/\":{\"username\":\"u\",\"password\":\"right\"},\"other:5000\":{}}}'\n"
	if err := one(fake, "Always", secret); err != nil {
		t.Errorf("with a pull secret: %v", err)
	}
}

// The images of volumes that are mounted are pulled by their own policy, and mounted by the
// name that the runtime gave.
func TestPullsVolumes(t *testing.T) {
	text := strings.Replace(manifestOf("a", "Never", "c: exit 0"), "image: 'i:1'", "image: 'i:1', volumeMounts: [{name: data, mountPath: /data, subPath: x}]", 1)
	const volumes = "  volumes: [{name: data, image: {reference: 'd:1', pullPolicy: POLICY}}, {name: idle, image: {reference: 'idle:1'}}]\n"
	try := func(fake *fakeruntime.Runtime, policy string) error {
		s := newStage(t, fake, strings.Replace(text, "---\n", strings.Replace(volumes, "POLICY", policy, 1)+"---\n", 1))
		if err := s.Start(t.Context(), s.plans); err != nil {
			return err
		}
		for _, c := range fake.Config("a/c") {
			if m := c.Mounts[0]; m.Image.GetImage() != "d:1" || m.Image.GetUserSpecifiedImage() != "d:1" || !m.Readonly || m.ImageSubPath != "x" || m.HostPath != "" {
				t.Errorf("the mount: %v", m)
			}
		}
		return s.Stop(t.Context(), nil)
	}
	fake := fakeruntime.New()
	if err := try(fake, "Never"); !errors.Is(err, errdefs.ErrNotFound) || !strings.Contains(err.Error(), "volume data: image d:1") || !strings.Contains(err.Error(), "pullPolicy is Never") {
		t.Errorf("Never and absent: %v", err)
	}
	fake = fakeruntime.New()
	if err := try(fake, "IfNotPresent"); err != nil || !slices.Contains(fake.Calls("pull"), "pull d:1") || slices.Contains(fake.Calls("pull"), "pull idle:1") {
		t.Errorf("IfNotPresent and absent: %v, %q", err, fake.Calls("pull"))
	}
	if err := try(fake, "Always"); err != nil || len(fake.Calls("pull")) != 3 {
		t.Errorf("Always: %v, %q", err, fake.Calls("pull"))
	}
}

// TestResolve holds that a class leads to its own handler or to a refusal.
func TestResolve(t *testing.T) {
	class := func(name, handler string) string {
		return "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: " + name + "}\nhandler: " + handler + "\noverhead: {podFixed: {memory: 1Mi}}\n---\n"
	}
	set, err := handlers.List(t.Context(), fakeruntime.New())
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, spec, want, handler string }{
		{"no class", "", "", ""},
		{"empty class", "runtimeClassName: ''", "", ""},
		{"runc", "runtimeClassName: native", "", "runc"},
		{"missing class", "runtimeClassName: nativ", `there is no RuntimeClass "nativ"; there are broken, native, sandboxed; did you mean native? (among the manifests)`, ""},
		{"missing handler", "runtimeClassName: sandboxed", `asks for the runtime handler "gvisor", which this machine does not have; the handlers here are runc (default)`, ""},
		{"broken handler", "runtimeClassName: broken", "which does not work on this machine: it fell over", ""},
		{"same overhead", "runtimeClassName: native\n  overhead: {memory: 1024Ki}", "", "runc"},
		{"other overhead", "runtimeClassName: native\n  overhead: {memory: 2Mi}", "spec.overhead: is memory 2Mi, and that of RuntimeClass native is memory 1Mi", ""},
		{"overhead alone", "overhead: {memory: 2Mi}", "spec.overhead: only a RuntimeClass", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := class("native", "runc") + class("sandboxed", "gvisor") + class("broken", "crun") +
				strings.Replace(manifestOf("a", "Never", "c: run"), "spec:\n", "spec:\n  "+tt.spec+"\n", 1)
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
