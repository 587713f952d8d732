// Package critest has a CRI runtime for tests that says of itself what it is given, and
// runs nothing.
package critest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is ready. Config is what containerd tells of its configuration, as JSON.
type Runtime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	Name, Release string
	Handlers      []string
	Config        string
}

// Version implements the CRI.
func (r *Runtime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: r.Name, RuntimeVersion: r.Release}, nil
}

// Status implements the CRI.
func (r *Runtime) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	reply := &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{{Type: runtimeapi.RuntimeReady, Status: true}}}}
	if r.Config != "" {
		reply.Info = map[string]string{"config": r.Config}
	}
	for _, name := range r.Handlers {
		reply.RuntimeHandlers = append(reply.RuntimeHandlers, &runtimeapi.RuntimeHandler{Name: name})
	}
	return reply, nil
}

// ListPodSandbox implements the CRI: there are none.
func (*Runtime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{}, nil
}

// Serve has it at a socket of a new root directory, until stop is called or the test ends.
func (r *Runtime) Serve(t testing.TB, socket string) (root string, stop func()) {
	t.Helper()
	root, err := os.MkdirTemp("", "cri") // as a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	path := filepath.Join(root, socket)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(s, r)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return root, s.Stop
}
