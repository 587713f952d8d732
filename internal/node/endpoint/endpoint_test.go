package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	path := serve(t, func(s *grpc.Server) { runtimeapi.RegisterRuntimeServiceServer(s, fake{}) })
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

// speaker is a runtime that says which CRI it speaks.
type speaker struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	speaks string
}

func (s speaker) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "old", RuntimeVersion: "1.5", RuntimeApiVersion: s.speaks}, nil
}

type images struct {
	runtimeapi.UnimplementedImageServiceServer
}

func (images) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{}, nil
}

func serve(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return path
}

// TestIncompatible has runtimes of another CRI refused, with what helps, and not taken
// for ones that are away for now.
func TestIncompatible(t *testing.T) {
	alpha := runtimeapi.RuntimeService_ServiceDesc
	alpha.ServiceName = "runtime.v1alpha2.RuntimeService"
	for name, tt := range map[string]struct {
		register func(*grpc.Server)
		want     string // nothing if it is taken
	}{
		"v1":       {func(s *grpc.Server) { runtimeapi.RegisterRuntimeServiceServer(s, speaker{speaks: "v1"}) }, ""},
		"unsaid":   {func(s *grpc.Server) { runtimeapi.RegisterRuntimeServiceServer(s, speaker{}) }, ""},
		"another":  {func(s *grpc.Server) { runtimeapi.RegisterRuntimeServiceServer(s, speaker{speaks: "v2"}) }, "old 1.5 at unix://%s speaks CRI v2, and Fairlead needs CRI v1; upgrade"},
		"v1alpha2": {func(s *grpc.Server) { s.RegisterService(&alpha, speaker{speaks: "v1alpha2"}) }, "old 1.5 at unix://%s speaks CRI v1alpha2, and Fairlead needs CRI v1; upgrade"},
		"none":     {func(*grpc.Server) {}, "what serves unix://%s has no CRI v1, which Fairlead needs; enable"},
	} {
		t.Run(name, func(t *testing.T) {
			path := serve(t, tt.register)
			e, err := Dial(t.Context(), path)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				_ = e.Close()
				return
			}
			if want := fmt.Sprintf(tt.want, path); !errors.Is(err, errdefs.ErrPrecondition) || errors.Is(err, errdefs.ErrUnavailable) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

// TestDialImages takes what has images only, and nothing that has none.
func TestDialImages(t *testing.T) {
	e, err := DialImages(t.Context(), serve(t, func(s *grpc.Server) { runtimeapi.RegisterImageServiceServer(s, images{}) }))
	if err != nil {
		t.Fatal(err)
	}
	_ = e.Close()
	if _, err := DialImages(t.Context(), serve(t, func(*grpc.Server) {})); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Errorf("got %v", err)
	}
}

// TestReconnect is there soon after a runtime that was away is back, however long that was.
func TestReconnect(t *testing.T) {
	path := serve(t, func(s *grpc.Server) { runtimeapi.RegisterRuntimeServiceServer(s, fake{}) })
	var away atomic.Bool
	var mu sync.Mutex
	var open []net.Conn
	tried := 0
	e, err := Dial(t.Context(), path, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if away.Load() {
			tried++
			return nil, errors.New("away")
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		open = append(open, conn)
		return conn, err
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	away.Store(true)
	mu.Lock()
	for _, conn := range open {
		_ = conn.Close()
	}
	mu.Unlock()
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		_, _ = e.Identify(t.Context())
	}
	away.Store(false)
	for end := time.Now().Add(3 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err = e.Identify(t.Context()); err == nil || time.Now().After(end) {
			break
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if err != nil || tried < 8 {
		t.Errorf("%v after %d attempts in 6 s", err, tried)
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
