package handlers

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/manifest"
)

// endpoint answers Status as Fairlead does.
type endpoint struct {
	runtimeapi.RuntimeServiceClient
	answer *runtimeapi.StatusResponse
}

func (e endpoint) Status(context.Context, *runtimeapi.StatusRequest, ...grpc.CallOption) (*runtimeapi.StatusResponse, error) {
	return e.answer, nil
}

func TestResolveWithoutClass(t *testing.T) {
	runc := &runtimeapi.RuntimeHandler{Name: "runc"}
	for name, tt := range map[string]struct {
		handlers []*runtimeapi.RuntimeHandler
		info     string
		want     string // in the error; empty for none
	}{
		"default works":       {[]*runtimeapi.RuntimeHandler{{}, runc}, `{"runc": {"default": true}}`, ""},
		"default is nowhere":  {[]*runtimeapi.RuntimeHandler{runc}, `{"runc": {}, "zz": {"default": true, "reason": "default_handler = \"zz\" names none"}}`, `the default handler zz (default_handler in the configuration) does not work here: default_handler = "zz" names none; the handlers here are runc`},
		"no default":          {[]*runtimeapi.RuntimeHandler{runc}, `{"runc": {}}`, "no default handler works here; the handlers here are runc"},
		"endpoint too old":    {nil, "", ""},
		"nothing of Fairlead": {[]*runtimeapi.RuntimeHandler{{}, runc}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := List(t.Context(), endpoint{answer: &runtimeapi.StatusResponse{RuntimeHandlers: tt.handlers, Info: map[string]string{"handlers": tt.info}}})
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Resolve(&manifest.Pod{Pod: &corev1.Pod{}, Origin: "f.yaml:1"}, nil)
			if (tt.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestCheckpointsAreListed(t *testing.T) {
	info := `{"runc": {"features": {"checkpoints": true}}, "crun": {"features": {"noCheckpoints": "no criu"}}}`
	s, err := List(t.Context(), endpoint{answer: &runtimeapi.StatusResponse{
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Name: "runc"}, {Name: "crun"}}, Info: map[string]string{"handlers": info},
	}})
	if err != nil {
		t.Fatal(err)
	}
	all := s.All()
	if len(all) != 2 || all[0].Checkpoints || all[0].NoCheckpoints != "no criu" || !all[1].Checkpoints || all[1].NoCheckpoints != "" {
		t.Errorf("%+v", all)
	}
}

// starting answers as a daemon does that has just started: runc's trial ends
// before the third answer, and kata's never does.
type starting struct {
	runtimeapi.RuntimeServiceClient
	calls int
}

func (e *starting) Status(context.Context, *runtimeapi.StatusRequest, ...grpc.CallOption) (*runtimeapi.StatusResponse, error) {
	e.calls++
	if e.calls < 3 {
		return &runtimeapi.StatusResponse{Info: map[string]string{"handlers": `{"runc": {"trying": true}, "kata": {"trying": true}}`}}, nil
	}
	return &runtimeapi.StatusResponse{
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{}, {Name: "runc"}},
		Info:            map[string]string{"handlers": `{"runc": {"default": true}, "kata": {"trying": true}}`},
	}, nil
}

func TestListWaitsForTheTrialsThatMatter(t *testing.T) {
	class := func(name, handler string) *nodev1.RuntimeClass {
		c := &nodev1.RuntimeClass{Handler: handler}
		c.Name = name
		return c
	}
	classes := map[string]*nodev1.RuntimeClass{"native": class("native", "runc"), "missing": class("missing", "gvisor")}
	of := func(class string) []*manifest.Pod {
		return []*manifest.Pod{{Pod: &corev1.Pod{Spec: corev1.PodSpec{RuntimeClassName: &class}}, Origin: "f.yaml:1"}}
	}
	for name, tt := range map[string]struct {
		pods  []*manifest.Pod
		calls int
	}{
		"its own":                   {of("native"), 3},
		"a handler that nobody has": {of("missing"), 1},
		"a class that nobody has":   {append(of("nowhere"), of("native")...), 3},
	} {
		t.Run(name, func(t *testing.T) {
			e := &starting{}
			s, err := List(t.Context(), e, Wanted(tt.pods, classes)...)
			if err != nil || e.calls != tt.calls {
				t.Fatalf("%d calls, %v", e.calls, err)
			}
			if _, err = s.Resolve(of("native")[0], classes); tt.calls == 3 && err != nil {
				t.Error(err)
			}
		})
	}
}

func TestListWaitsForAll(t *testing.T) {
	for name, wanted := range map[string][]string{"nothing named": nil, "the default named": Wanted([]*manifest.Pod{{Pod: &corev1.Pod{}}}, nil)} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			e := &ending{cancel: cancel}
			if _, err := List(ctx, e, wanted...); !errors.Is(err, context.Canceled) || e.calls < 5 {
				t.Errorf("%d calls, %v: kata was not waited for", e.calls, err)
			}
		})
	}
}

// ending is starting until its fifth answer, at which the caller goes.
type ending struct {
	starting
	cancel context.CancelFunc
}

func (e *ending) Status(ctx context.Context, r *runtimeapi.StatusRequest, o ...grpc.CallOption) (*runtimeapi.StatusResponse, error) {
	if e.calls == 4 {
		e.cancel()
	}
	return e.starting.Status(ctx, r, o...)
}
