package cri

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
)

// server answers with what it is given.
type server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	conditions []*runtimeapi.RuntimeCondition
	err        error
	name       string
	sandboxes  []*runtimeapi.PodSandbox
	info       map[string]string // by sandbox
	containers []*runtimeapi.Container
	// onContainers is called before it tells of them; it may be nil.
	onContainers func() error
}

func (s *server) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: s.name}, nil
}

func (s *server) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: s.sandboxes}, nil
}

func (s *server) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	if s.onContainers != nil {
		if err := s.onContainers(); err != nil {
			return nil, err
		}
	}
	return &runtimeapi.ListContainersResponse{Containers: s.containers}, nil
}

func (s *server) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	info, ok := s.info[r.GetPodSandboxId()]
	if !ok || !r.GetVerbose() {
		return nil, status.Error(codes.NotFound, "no such sandbox")
	}
	return &runtimeapi.PodSandboxStatusResponse{Info: map[string]string{"info": info}}, nil
}

func (s *server) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: s.conditions}}, s.err
}

func serve(t *testing.T, s *server) Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(g, s)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		_ = os.RemoveAll(dir)
	})
	return Client{Socket: filepath.Join(dir, "s")}
}

// Only silence is a reason to restart a runtime.
func TestAnswers(t *testing.T) {
	not := func(kind string) []*runtimeapi.RuntimeCondition {
		return []*runtimeapi.RuntimeCondition{{Type: kind, Status: false, Reason: "x"}}
	}
	for name, c := range map[string]struct {
		server server
		silent bool
	}{
		"ready":                {server{}, false},
		"no network":           {server{conditions: not(runtimeapi.NetworkReady)}, false},
		"not ready":            {server{conditions: not(runtimeapi.RuntimeReady)}, false},
		"no status":            {server{err: status.Error(codes.Unknown, "not initialized")}, true},
		"the plugin is absent": {server{err: status.Error(codes.Unimplemented, "unknown service")}, true},
	} {
		err := serve(t, &c.server).Answers(t.Context())
		if c.silent != errors.Is(err, errdefs.ErrUnavailable) || c.silent != (err != nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
	gone := Client{Socket: filepath.Join(t.TempDir(), "none")}
	if err := gone.Answers(t.Context()); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Errorf("nobody is there: %v", err)
	}
}

// One that takes the connection and says nothing hangs.
func TestOneThatHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if c, err := l.Accept(); err == nil {
			cancel() // as the time that it has is over
			_ = c.Close()
		}
	}()
	if err := (Client{Socket: path}).Answers(ctx); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Errorf("it hangs: %v", err)
	}
}

func TestReadInForce(t *testing.T) {
	got, err := readInForce([]byte("[crio]\n[crio.runtime]\n[crio.runtime.runtimes.kata]\nruntime_path = \"/a\"\nruntime_type = \"vm\"\nruntime_config_path = \"/c\"\nother = [1]\n"))
	if want := map[string]Loaded{"kata": {Type: "vm", Path: "/a", ConfigPath: "/c"}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := readInForce([]byte("[[")); err == nil {
		t.Error("garbage was read")
	}
}

// CRI-O's lists do not say on which handlers pods are.
func TestSandboxes(t *testing.T) {
	spec := func(handler string) string {
		return `{"runtimeSpec":{"annotations":{"io.kubernetes.cri-o.RuntimeHandler":"` + handler + `"}}}`
	}
	for name, c := range map[string]struct {
		server server
		want   []string
		fails  bool
	}{
		"containerd": {server{name: "containerd", sandboxes: []*runtimeapi.PodSandbox{{Id: "1", RuntimeHandler: "a"}, {Id: "2"}}}, []string{"1 a", "2 "}, false},
		"CRI-O": {server{
			name: "cri-o", sandboxes: []*runtimeapi.PodSandbox{{Id: "1"}, {Id: "gone"}, {Id: "2"}, {Id: "3", RuntimeHandler: "told"}},
			info: map[string]string{"1": spec("kata"), "2": spec("")},
		}, []string{"1 kata", "2 ", "3 told"}, false},
		"one that does not tell":    {server{name: "cri-o", sandboxes: []*runtimeapi.PodSandbox{{Id: "1"}}, info: map[string]string{"1": "{}"}}, nil, true},
		"one that tells no objects": {server{name: "cri-o", sandboxes: []*runtimeapi.PodSandbox{{Id: "1"}}, info: map[string]string{"1": ""}}, nil, true},
	} {
		all, err := serve(t, &c.server).Sandboxes(t.Context())
		var got []string
		for _, s := range all {
			got = append(got, s.ID+" "+s.Handler)
		}
		if c.fails != (err != nil) || !c.fails && !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// What is new and on its way is waited for, and nothing else.
func TestQuiet(t *testing.T) {
	now, old := time.Now().UnixNano(), time.Now().Add(-time.Hour).UnixNano()
	pod := func(id string, at int64) *runtimeapi.PodSandbox { return &runtimeapi.PodSandbox{Id: id, CreatedAt: at} }
	container := func(state runtimeapi.ContainerState, at int64) *runtimeapi.Container {
		return &runtimeapi.Container{PodSandboxId: "p", State: state, CreatedAt: at}
	}
	const created, running = runtimeapi.ContainerState_CONTAINER_CREATED, runtimeapi.ContainerState_CONTAINER_RUNNING
	for name, c := range map[string]struct {
		server server
		waits  bool
	}{
		"nothing":                   {server{}, false},
		"a pod runs":                {server{sandboxes: []*runtimeapi.PodSandbox{pod("p", now)}, containers: []*runtimeapi.Container{container(running, now)}}, false},
		"a container is made":       {server{sandboxes: []*runtimeapi.PodSandbox{pod("p", old)}, containers: []*runtimeapi.Container{container(running, old), container(created, now)}}, true},
		"a container was left":      {server{sandboxes: []*runtimeapi.PodSandbox{pod("p", old)}, containers: []*runtimeapi.Container{container(created, old)}}, false},
		"a pod without containers":  {server{sandboxes: []*runtimeapi.PodSandbox{pod("p", now)}}, true},
		"one that was left without": {server{sandboxes: []*runtimeapi.PodSandbox{pod("p", old)}}, false},
		"one that has ended":        {server{sandboxes: []*runtimeapi.PodSandbox{{Id: "p", CreatedAt: now, State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}}}, false},
		"no answer":                 {server{sandboxes: []*runtimeapi.PodSandbox{pod("p", now)}, onContainers: func() error { return status.Error(codes.Unavailable, "no") }}, false},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		looks := 0
		if c.server.onContainers == nil {
			c.server.onContainers = func() error {
				if looks++; looks == 3 {
					cancel() // as the time that it has is over
				}
				return nil
			}
		}
		if left := serve(t, &c.server).Quiet(ctx); c.waits != (left == 1) || c.waits != (looks == 3) {
			t.Errorf("%s: after %d looks %d are left", name, looks, left)
		}
		cancel()
	}
}
