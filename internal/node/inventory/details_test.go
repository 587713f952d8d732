package inventory

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fakeRuntime answers for one pod with one container.
type fakeRuntime struct {
	runtimeapi.RuntimeServiceClient
	info string
}

func (f fakeRuntime) PodSandboxStatus(context.Context, *runtimeapi.PodSandboxStatusRequest, ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{
		Status: &runtimeapi.PodSandboxStatus{Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1", AdditionalIps: []*runtimeapi.PodIP{{Ip: "fd00::1"}}}},
		Info:   map[string]string{"info": f.info},
	}, nil
}

func (fakeRuntime) ContainerStatus(context.Context, *runtimeapi.ContainerStatusRequest, ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Message: "its process cannot be seen"}}, nil
}

func TestDetailsSayWhatIsUnknownAndWhy(t *testing.T) {
	for name, tt := range map[string]struct{ info, state, reason string }{
		"unknown":      {`{"state":"Unknown","reason":"its cgroup is gone","runtimeHandler":"crun"}`, "Unknown", "its cgroup is gone"},
		"ready":        {`{"state":"Running","reason":"of old","runtimeHandler":"crun"}`, "Stopped", ""},
		"other daemon": {`{"state":7}`, "Stopped", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pods := []Pod{{ID: "p", State: "Stopped", Containers: []Container{{ID: "c", State: "Unknown"}, {ID: "d", State: "Running"}}}}
			AddDetails(t.Context(), fakeRuntime{info: tt.info}, pods)
			p := pods[0]
			if p.State != tt.state || p.Reason != tt.reason || len(p.Addresses) != 2 {
				t.Errorf("%+v", p)
			}
			if p.Containers[0].Message == "" || p.Containers[1].Message != "" {
				t.Errorf("%+v", p.Containers)
			}
		})
	}
}
