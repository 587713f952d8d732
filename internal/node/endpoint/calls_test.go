package endpoint

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// failing is a runtime whose pulls fail.
type failing struct{ grpc.ClientConnInterface }

func (failing) Invoke(_ context.Context, method string, _, _ any, _ ...grpc.CallOption) error {
	if strings.HasSuffix(method, "/PullImage") {
		return errors.New("no such registry")
	}
	return nil
}

// TestCalls are counted by the names that a kubelet has for them.
func TestCalls(t *testing.T) {
	c := NewCalls()
	conn := c.Over(failing{})
	box, images := runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	for range 2 {
		if _, err := box.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{}); err != nil {
			t.Error(err)
		}
	}
	if _, err := box.ListPodSandboxMetrics(t.Context(), &runtimeapi.ListPodSandboxMetricsRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := images.PullImage(t.Context(), &runtimeapi.PullImageRequest{}); err == nil {
		t.Error("the error is lost")
	}
	var out strings.Builder
	if err := c.Write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`kubelet_runtime_operations_total{operation_type="run_podsandbox"} 2`,
		`kubelet_runtime_operations_total{operation_type="list_pod_sandbox_metrics"} 1`,
		`kubelet_runtime_operations_duration_seconds_count{operation_type="run_podsandbox"} 2`,
		`kubelet_runtime_operations_total{operation_type="pull_image"} 1`,
		`kubelet_runtime_operations_errors_total{operation_type="pull_image"} 1`,
	} {
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("there is no %s in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), `errors_total{operation_type="run_podsandbox"}`) {
		t.Errorf("errors that were none in\n%s", &out)
	}
}
