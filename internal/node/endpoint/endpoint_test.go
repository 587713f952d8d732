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
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
)

type fake struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	last *runtimeapi.StopPodSandboxRequest
}

func (f *fake) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "fake", RuntimeVersion: "1"}, nil
}

func (f *fake) StopPodSandbox(_ context.Context, r *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	f.last = r
	if r.PodSandboxId == "bad" {
		return nil, status.Error(codes.FailedPrecondition, "no")
	}
	if r.PodSandboxId == "plain" {
		return nil, errors.New("plain")
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

// ListPodSandbox has encoded a part of its answer itself.
func (f *fake) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	p := &runtimeapi.PodSandbox{Id: "p"}
	encoded, err := proto.Marshal(&runtimeapi.PodSandbox{Labels: map[string]string{"app": "web"}})
	p.ProtoReflect().SetUnknown(encoded)
	return &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{p}}, err
}

func both(t *testing.T) map[string]*Endpoint {
	f := &fake{}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(s, f)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	dialed, err := Dial(t.Context(), "unix://"+path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dialed.Close() })
	if dialed.Name != "fake" || dialed.Version != "1" {
		t.Errorf("the runtime is %q %q", dialed.Name, dialed.Version)
	}
	return map[string]*Endpoint{"dial": dialed, "local": Local(f, f, nil)}
}

// TestSameAnswers wants the same from both kinds of endpoint.
func TestSameAnswers(t *testing.T) {
	for name, e := range both(t) {
		for id, want := range map[string]codes.Code{"ok": codes.OK, "bad": codes.FailedPrecondition, "plain": codes.Unknown} {
			_, err := e.Runtime.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
			if got := status.Code(err); got != want {
				t.Errorf("%s: %s: got %v, want %v", name, id, err, want)
			}
		}
		if _, err := e.Images.ListImages(t.Context(), &runtimeapi.ListImagesRequest{}); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: a missing method: %v", name, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := e.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{}); status.Code(err) != codes.Canceled {
			t.Errorf("%s: a cancelled call: %v", name, err)
		}
	}
}

func TestAnswersThatAreEncodedInPart(t *testing.T) {
	for name, e := range both(t) {
		r, err := e.Runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
		if err != nil || len(r.Items) != 1 || r.Items[0].Id != "p" || r.Items[0].Labels["app"] != "web" {
			t.Errorf("%s: %v %v", name, r, err)
		}
	}
}

func TestLocalInterceptorAndCopies(t *testing.T) {
	f := &fake{}
	seen := ""
	e := Local(f, f, func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		seen = info.FullMethod
		return next(ctx, req)
	})
	r := &runtimeapi.StopPodSandboxRequest{PodSandboxId: "a"}
	if _, err := e.Runtime.StopPodSandbox(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if seen != "/runtime.v1.RuntimeService/StopPodSandbox" {
		t.Errorf("the interceptor saw %q", seen)
	}
	if f.last == r {
		t.Error("the server got the client's own message")
	}
	if _, err := e.Runtime.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a stream: %v", err)
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
