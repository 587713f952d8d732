package endpoint

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
)

type fake struct {
	runtimeapi.UnimplementedRuntimeServiceServer
}

func (fake) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "fake", RuntimeVersion: "1"}, nil
}

func (fake) StopPodSandbox(_ context.Context, r *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	switch r.PodSandboxId {
	case "bad":
		return nil, status.Error(codes.FailedPrecondition, "no")
	case "plain":
		return nil, errors.New("plain")
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

// TestAnswers wants a runtime's answers and errors as they are.
func TestAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(s, fake{})
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	e, err := Dial(t.Context(), "unix://"+path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	if e.Name != "fake" || e.Version != "1" {
		t.Errorf("the runtime is %q %q", e.Name, e.Version)
	}
	for id, want := range map[string]codes.Code{"ok": codes.OK, "bad": codes.FailedPrecondition, "plain": codes.Unknown} {
		_, err := e.Runtime.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
		if got := status.Code(err); got != want {
			t.Errorf("%s: got %v, want %v", id, err, want)
		}
	}
	if _, err := e.Images.ListImages(t.Context(), &runtimeapi.ListImagesRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a missing service: %v", err)
	}
}

func TestDialErrors(t *testing.T) {
	dead := filepath.Join(t.TempDir(), "dead")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	for socket, want := range map[string]error{
		"/nowhere/s": errdefs.ErrNotFound, "tcp://x": errdefs.ErrInvalidArgument, "unix://" + dead: errdefs.ErrUnavailable,
	} {
		if _, err := Dial(t.Context(), socket); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", socket, err, want)
		}
	}
}
