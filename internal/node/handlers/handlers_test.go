package handlers

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
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
