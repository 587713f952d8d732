package inventory

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// restarting has attempts of a container, and a sandbox that may have ended.
type restarting struct {
	runtimeapi.RuntimeServiceClient
	attempts []uint32
	state    runtimeapi.PodSandboxState
	info     string
	err      error
}

func (r restarting) ListContainers(_ context.Context, req *runtimeapi.ListContainersRequest, _ ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	resp := &runtimeapi.ListContainersResponse{}
	for _, n := range r.attempts {
		for _, name := range []string{"main", "other"} {
			resp.Containers = append(resp.Containers, &runtimeapi.Container{
				Id: name + string(rune('0'+n)), Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: n}, State: runtimeapi.ContainerState_CONTAINER_EXITED,
			})
		}
	}
	if req.GetFilter().GetLabelSelector()["io.kubernetes.pod.uid"] != "u" {
		return nil, status.Error(codes.InvalidArgument, "asks about other pods")
	}
	return resp, nil
}

func (r restarting) PodSandboxStatus(context.Context, *runtimeapi.PodSandboxStatusRequest, ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	if r.err != nil {
		return nil, r.err
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{State: r.state}, Info: map[string]string{"info": r.info}}, nil
}

func TestPrevious(t *testing.T) {
	p := &Pod{Namespace: "default", Name: "web", UID: "u"}
	for name, tt := range map[string]struct {
		attempts []uint32
		now      uint32
		id, err  string
	}{
		"the one before":    {[]uint32{2, 3, 1}, 3, "main2", ""},
		"the first":         {[]uint32{0}, 0, "", "was not restarted"},
		"removed meanwhile": {[]uint32{3}, 3, "", "was removed, and its log with it"},
	} {
		c, err := Previous(t.Context(), restarting{attempts: tt.attempts}, p, &Container{Name: "main", Attempt: tt.now})
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || c.ID != tt.id {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

// TestUp takes only what is known to be over for that.
func TestUp(t *testing.T) {
	p := &Pod{Namespace: "default", Name: "web"}
	down := runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	for name, tt := range map[string]struct {
		runtime restarting
		want    string
	}{
		"runs":    {restarting{}, ""},
		"ended":   {restarting{state: down, info: `{"state":"Exited"}`}, "pod web has ended"},
		"another": {restarting{state: down}, "pod web has ended"},
		"unknown": {restarting{state: down, info: `{"state":"Unknown"}`}, ""},
		"away":    {restarting{err: status.Error(codes.Unavailable, "away")}, ""},
		"removed": {restarting{err: status.Error(codes.NotFound, "no such sandbox")}, "pod web was removed"},
	} {
		err := Up(t.Context(), tt.runtime, p)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := AwaitEnd(t.Context(), restarting{state: down}, p); err == nil {
		t.Error("it does not end")
	}
}
