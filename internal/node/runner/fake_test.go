package runner

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/endpoint"
	"fairlead.run/internal/node/handlers"
	"fairlead.run/internal/node/logs"
	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/podspec"
)

// fakeCRI is a runtime in memory. Containers print one line and then do what
// their first argument says: "exit N", or run on.
type fakeCRI struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	mu         sync.Mutex
	next       int
	sandboxes  map[string]*runtimeapi.RunPodSandboxRequest
	containers map[string]*fakeContainer
	pulled     []string
	pulledFor  *runtimeapi.PodSandboxMetadata // the last
	present    map[string]bool
	failOn     map[string]error // method and name
	stops      []int64          // timeouts of StopContainer
	stopped    []string         // containers, in the order in which they were
	lost       map[string]bool  // sandboxes that do not run any more
	stubborn   bool             // StopContainer waits for its whole timeout
	started    map[string]int   // starts by container name
	lists      int              // how often containers were listed
	calls      []string         // of what happens to containers, in order
	// exec is what commands do; nil for nothing. It is called without the lock.
	exec func(ctx context.Context, container string, command []string) (int32, error)
}

type fakeContainer struct {
	sandbox string
	config  *runtimeapi.ContainerConfig
	state   runtimeapi.ContainerState
	code    int32
	ended   time.Time
}

func newFake() *fakeCRI {
	return &fakeCRI{
		sandboxes: map[string]*runtimeapi.RunPodSandboxRequest{}, containers: map[string]*fakeContainer{},
		present: map[string]bool{}, failOn: map[string]error{}, started: map[string]int{}, lost: map[string]bool{},
	}
}

// serve is the way to the fake, as to any runtime.
func (f *fakeCRI) serve(t *testing.T) *endpoint.Endpoint {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(s, f)
	runtimeapi.RegisterImageServiceServer(s, f)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	e, err := endpoint.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// Version is what Dial asks for.
func (*fakeCRI) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "fake", RuntimeVersion: "1"}, nil
}

func (f *fakeCRI) id(kind string) string {
	f.next++
	return fmt.Sprintf("%s%d", kind, f.next)
}

func (f *fakeCRI) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{}, {Name: "runc"}},
		Info:            map[string]string{"handlers": `{"runc":{"default":true,"ready":true},"crun":{"reason":"it fell over"}}`},
	}, nil
}

func (f *fakeCRI) RunPodSandbox(_ context.Context, r *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failOn["sandbox "+r.Config.Metadata.Name]; err != nil {
		return nil, err
	}
	id := f.id("s")
	f.sandboxes[id] = r
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func (f *fakeCRI) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Id: r.PodSandboxId, Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.9.8.7"}, RuntimeHandler: "runc",
	}}, nil
}

func (f *fakeCRI) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &runtimeapi.ListPodSandboxResponse{}
	for id, r := range f.sandboxes {
		state := runtimeapi.PodSandboxState_SANDBOX_READY
		if f.lost[id] {
			state = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		}
		out.Items = append(out.Items, &runtimeapi.PodSandbox{Id: id, Metadata: r.Config.Metadata, State: state})
	}
	return out, nil
}

// GetContainerEvents tells of every pod that has become another.
func (f *fakeCRI) GetContainerEvents(_ *runtimeapi.GetEventsRequest, out grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	if err := out.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	told := map[string]string{}
	for out.Context().Err() == nil {
		for id, now := range f.states() {
			if told[id] == now.state {
				continue
			}
			told[id] = now.state
			event := &runtimeapi.ContainerEventResponse{PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: id, Metadata: now.metadata}}
			if err := out.Send(event); err != nil {
				return err
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	return out.Context().Err()
}

type fakeState struct {
	metadata *runtimeapi.PodSandboxMetadata
	state    string
}

// states are what sandboxes and all that is in them do.
func (f *fakeCRI) states() map[string]fakeState {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]fakeState{}
	for id, r := range f.sandboxes {
		state := fmt.Sprint(f.lost[id])
		for _, name := range slices.Sorted(maps.Keys(f.containers)) {
			if c := f.containers[name]; c.sandbox == id {
				state += fmt.Sprint(" ", name, c.state)
			}
		}
		out[id] = fakeState{r.Config.Metadata, state}
	}
	return out
}

func (f *fakeCRI) StopPodSandbox(_ context.Context, r *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose(r.PodSandboxId)
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

// lose ends a sandbox and all that runs in it.
func (f *fakeCRI) lose(sandbox string) {
	f.lost[sandbox] = true
	for _, c := range f.containers {
		if c.sandbox == sandbox && c.state != runtimeapi.ContainerState_CONTAINER_EXITED {
			c.state, c.code, c.ended = runtimeapi.ContainerState_CONTAINER_EXITED, 137, time.Now()
		}
	}
}

func (f *fakeCRI) RemovePodSandbox(_ context.Context, r *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sandboxes, r.PodSandboxId)
	for id, c := range f.containers {
		if c.sandbox == r.PodSandboxId {
			f.remove(id)
		}
	}
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

func (f *fakeCRI) remove(container string) {
	if c := f.containers[container]; c != nil {
		f.calls = append(f.calls, "remove "+c.config.Metadata.Name)
	}
	delete(f.containers, container)
}

func (f *fakeCRI) CreateContainer(_ context.Context, r *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failOn["create "+r.Config.Metadata.Name]; err != nil {
		return nil, err
	}
	id := f.id("c")
	f.calls = append(f.calls, "create "+r.Config.Metadata.Name)
	f.containers[id] = &fakeContainer{sandbox: r.PodSandboxId, config: r.Config}
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

func (f *fakeCRI) StartContainer(_ context.Context, r *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.containers[r.ContainerId]
	name := c.config.Metadata.Name
	if err := f.failOn["start "+name]; err != nil {
		return nil, err
	}
	f.started[name]++
	f.calls = append(f.calls, "start "+name)
	line := fmt.Sprintf("2026-01-02T03:04:05Z stdout F %s says hello %d\n", name, c.config.Metadata.Attempt)
	path := filepath.Join(f.sandboxes[c.sandbox].Config.LogDirectory, c.config.LogPath)
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		return nil, err
	}
	c.state = runtimeapi.ContainerState_CONTAINER_RUNNING
	if len(c.config.Args) > 0 {
		if _, err := fmt.Sscanf(c.config.Args[0], "exit %d", &c.code); err == nil {
			c.state, c.ended = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now()
		}
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

func (f *fakeCRI) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.containers[r.ContainerId]
	if c == nil {
		return nil, status.Error(codes.NotFound, "gone")
	}
	s := &runtimeapi.ContainerStatus{Id: r.ContainerId, State: c.state, ExitCode: c.code}
	if !c.ended.IsZero() {
		s.FinishedAt, s.StartedAt = c.ended.UnixNano(), c.ended.UnixNano()
	}
	return &runtimeapi.ContainerStatusResponse{Status: s}, nil
}

func (f *fakeCRI) ListContainers(_ context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	out := &runtimeapi.ListContainersResponse{}
	for id, c := range f.containers {
		if p := r.GetFilter().GetPodSandboxId(); p == "" || p == c.sandbox {
			out.Containers = append(out.Containers, &runtimeapi.Container{Id: id, PodSandboxId: c.sandbox, Metadata: c.config.Metadata, State: c.state, Annotations: c.config.Annotations})
		}
	}
	return out, nil
}

func (f *fakeCRI) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	f.mu.Lock()
	f.stops = append(f.stops, r.Timeout)
	stubborn := f.stubborn
	f.mu.Unlock()
	if stubborn && r.Timeout > 0 {
		select {
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-time.After(time.Duration(r.Timeout) * time.Second):
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.containers[r.ContainerId]; c != nil {
		f.stopped = append(f.stopped, c.config.Metadata.Name)
		f.calls = append(f.calls, "stop "+c.config.Metadata.Name)
		if c.state != runtimeapi.ContainerState_CONTAINER_EXITED {
			c.state, c.code, c.ended = runtimeapi.ContainerState_CONTAINER_EXITED, 143, time.Now()
		}
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

func (f *fakeCRI) RemoveContainer(_ context.Context, r *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(r.ContainerId)
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (f *fakeCRI) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	f.mu.Lock()
	c := f.containers[r.ContainerId]
	if c == nil || c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		f.mu.Unlock()
		return nil, status.Error(codes.FailedPrecondition, "the container does not run")
	}
	f.calls = append(f.calls, "exec "+c.config.Metadata.Name+" "+strings.Join(r.Cmd, " "))
	exec := f.exec
	f.mu.Unlock()
	if exec == nil {
		return &runtimeapi.ExecSyncResponse{}, nil
	}
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.Timeout)*time.Second)
		defer cancel()
	}
	code, err := exec(ctx, c.config.Metadata.Name, r.Cmd)
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	return &runtimeapi.ExecSyncResponse{ExitCode: code}, nil
}

// did is what has happened so far to a container.
func (f *fakeCRI) did(container string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, call := range f.calls {
		verb, rest, _ := strings.Cut(call, " ")
		name, command, _ := strings.Cut(rest, " ")
		if name == container {
			out = append(out, strings.TrimSpace(verb+" "+command))
		}
	}
	return strings.Join(out, ", ")
}

func (f *fakeCRI) ImageStatus(_ context.Context, r *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.present[r.Image.Image] {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: r.Image.Image}}, nil
}

func (f *fakeCRI) PullImage(_ context.Context, r *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := r.Image.Image
	if err := f.failOn["pull "+name]; err != nil && r.Auth.GetPassword() != "right" {
		return nil, err
	}
	f.pulled, f.present[name], f.pulledFor = append(f.pulled, name), true, r.GetSandboxConfig().GetMetadata()
	return &runtimeapi.PullImageResponse{ImageRef: name}, nil
}

// watcher records what an observer is told.
type watcher struct {
	mu    sync.Mutex
	lines []string
	notes []string
	last  map[string]Status
}

func (w *watcher) Note(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, text)
}

func (w *watcher) Changed(s Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last[s.Name] = s
}

func (w *watcher) Line(_, pod, container string, l logs.Line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, pod+"/"+container+": "+string(l.Text))
}

// run is one test's runner.
type run struct {
	*Runner
	fake  *fakeCRI
	seen  *watcher
	plans []Plan
	root  string
}

// newRun decodes manifests and resolves them against a fake.
func newRun(t *testing.T, fake *fakeCRI, text string) *run {
	t.Helper()
	objects, err := manifest.Decode([]manifest.Source{{Name: "t.yaml", Data: []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	e := fake.serve(t)
	set, err := handlers.List(t.Context(), e.Runtime)
	if err != nil {
		t.Fatal(err)
	}
	plans, err := Resolve(set, objects.Pods, objects.Classes)
	if err != nil {
		t.Fatal(err)
	}
	root, seen := t.TempDir(), &watcher{last: map[string]Status{}}
	return &run{
		Runner: New(Config{
			Endpoint: e, Puller: CRIPuller{Images: e.Images}, Objects: &Objects{objects}, Node: podspec.Node{Name: "n"},
			Observer: seen, Root: root + "/lib", State: root + "/run",
		}),
		fake: fake, seen: seen, plans: plans, root: root,
	}
}

// left lists what a run left in its folders and in the runtime.
func (r *run) left(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, dir := range []string{"lib/run", "run/run"} {
		entries, _ := os.ReadDir(filepath.Join(r.root, dir))
		for _, e := range entries {
			out = append(out, dir+"/"+e.Name())
		}
	}
	for id := range r.fake.sandboxes {
		out = append(out, id)
	}
	for id := range r.fake.containers {
		out = append(out, id)
	}
	return out
}
