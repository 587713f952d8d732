package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// TestMain checks that nothing of a server, and no session, goes on when all
// tests have ended.
func TestMain(m *testing.M) {
	code := m.Run()
	left := ""
	for range 100 {
		buf := make([]byte, 1<<20)
		left = ""
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, "internal/node/server.") && !strings.Contains(g, "TestMain") {
				left += g + "\n\n"
			}
		}
		if left == "" {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if left != "" {
		fmt.Fprintf(os.Stderr, "these go on after all tests:\n%s", left)
		code = 1
	}
	os.Exit(code)
}

// fakeNode has the pods that a test puts into it.
type fakeNode []*corev1.Pod

func (n fakeNode) Pods() []*corev1.Pod { return n }

func (n fakeNode) Pod(namespace, name string, uid types.UID) (*corev1.Pod, bool) {
	for _, p := range n {
		if p.Namespace == namespace && p.Name == name && (uid == "" || uid == p.UID) {
			return p, true
		}
	}
	return nil, false
}

func ran(id string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: id, ExitCode: 3}}
}

func waits(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

// webPod has containers in all states.
func webPod() *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1"}}
	add := func(s corev1.ContainerStatus) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: s.Name})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
	}
	up := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	add(corev1.ContainerStatus{Name: "up", ContainerID: "fairlead://up-1", State: up, LastTerminationState: ran("fairlead://up-0")})
	add(corev1.ContainerStatus{Name: "new", ContainerID: "fairlead://new-0", State: up})
	add(corev1.ContainerStatus{Name: "done", State: ran("fairlead://done-0")})
	add(corev1.ContainerStatus{Name: "never", State: ran("")})
	add(corev1.ContainerStatus{Name: "crashing", State: waits("CrashLoopBackOff"), LastTerminationState: ran("fairlead://crashing-3")})
	add(corev1.ContainerStatus{Name: "pulling", State: waits("ImagePullBackOff")})
	add(corev1.ContainerStatus{Name: "unpullable", State: waits("ErrImagePull")})
	add(corev1.ContainerStatus{Name: "creating", State: waits("ContainerCreating")})
	add(corev1.ContainerStatus{Name: "removed", ContainerID: "fairlead://removed-0", State: up})
	add(corev1.ContainerStatus{Name: "silent", ContainerID: "fairlead://silent-0", State: up})
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "unseen"})
	p.Spec.InitContainers = []corev1.Container{{Name: "init"}}
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", State: ran("fairlead://init-0")}}
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger"}}}
	p.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "debugger", ContainerID: "fairlead://debugger-0", State: up}}
	return p
}

// fakeRuntime is a CRI with the log files of a test, whose streams are served by
// fakeStreams.
type fakeRuntime struct {
	runtimeapi.RuntimeServiceClient
	streams string // address
	logs    map[string]string

	mu       sync.Mutex
	requests []any
	ended    map[string]bool
	sandbox  []*runtimeapi.PodSandbox
	err      error
}

func (f *fakeRuntime) note(r any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, r)
	return f.err
}

func (f *fakeRuntime) last(t *testing.T) any {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.requests) == 0 {
		t.Fatal("the runtime was not asked")
	}
	return f.requests[len(f.requests)-1]
}

func (f *fakeRuntime) end(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended[id] = true
}

func (f *fakeRuntime) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	path, ok := f.logs[r.GetContainerId()]
	if !ok {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	st := &runtimeapi.ContainerStatus{Id: r.GetContainerId(), LogPath: path, State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	if f.ended[r.GetContainerId()] {
		st.State = runtimeapi.ContainerState_CONTAINER_EXITED
	}
	return &runtimeapi.ContainerStatusResponse{Status: st}, nil
}

func (f *fakeRuntime) Exec(_ context.Context, r *runtimeapi.ExecRequest, _ ...grpc.CallOption) (*runtimeapi.ExecResponse, error) {
	return &runtimeapi.ExecResponse{Url: f.streams + "/session/" + r.GetCmd()[0]}, f.note(r)
}

func (f *fakeRuntime) Attach(_ context.Context, r *runtimeapi.AttachRequest, _ ...grpc.CallOption) (*runtimeapi.AttachResponse, error) {
	return &runtimeapi.AttachResponse{Url: f.streams + "/session/cat"}, f.note(r)
}

func (f *fakeRuntime) PortForward(_ context.Context, r *runtimeapi.PortForwardRequest, _ ...grpc.CallOption) (*runtimeapi.PortForwardResponse, error) {
	return &runtimeapi.PortForwardResponse{Url: f.streams + "/ports"}, f.note(r)
}

func (f *fakeRuntime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest, ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: f.sandbox}, nil
}

func (f *fakeRuntime) ListContainers(context.Context, *runtimeapi.ListContainersRequest, ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{
		{PodSandboxId: "s1", Metadata: &runtimeapi.ContainerMetadata{Name: "up"}, Image: &runtimeapi.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "web:1"}},
	}}, nil
}

func (f *fakeRuntime) ExecSync(_ context.Context, r *runtimeapi.ExecSyncRequest, _ ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	resp := &runtimeapi.ExecSyncResponse{Stdout: []byte("out\n"), Stderr: []byte("err\n")}
	if r.GetCmd()[0] == "false" {
		resp.ExitCode = 1
	}
	return resp, f.note(r)
}

func (f *fakeRuntime) CheckpointContainer(_ context.Context, r *runtimeapi.CheckpointContainerRequest, _ ...grpc.CallOption) (*runtimeapi.CheckpointContainerResponse, error) {
	return &runtimeapi.CheckpointContainerResponse{}, f.note(r)
}

// flood is how much the session of that name writes.
const flood = 64 << 20

// fakeStreams is the streaming server of a CRI: sessions by SPDY and WebSocket, and ports
// by SPDY, each of which echoes.
type fakeStreams struct {
	*httptest.Server
	mu      sync.Mutex
	headers []http.Header
	open    sync.WaitGroup
}

func newStreams(t *testing.T) *fakeStreams {
	f := &fakeStreams{}
	mux := http.NewServeMux()
	mux.HandleFunc("/session/{name}", f.session)
	mux.HandleFunc("/ports", f.ports)
	f.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		f.open.Wait()
		f.Close()
	})
	return f
}

// parts are the streams of a session.
type parts map[string]io.ReadWriteCloser

func (f *fakeStreams) session(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.headers = append(f.headers, r.Header.Clone())
	f.mu.Unlock()
	f.open.Add(1)
	defer f.open.Done()
	name := r.PathValue("name")
	switch name {
	case "refuse":
		http.Error(w, "no such stream: its URL works once", http.StatusNotFound)
		return
	case "plain":
		fmt.Fprint(w, "hello")
		return
	}
	all, end := openParts(w, r)
	if all == nil {
		return
	}
	defer end()
	code := perform(name, all)
	st := metav1.Status{Status: metav1.StatusSuccess}
	if code != "0" {
		st = metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: code}}}}
	}
	_ = json.NewEncoder(all["error"]).Encode(st)
}

// perform is the program of a session; it returns its exit code.
func perform(name string, all parts) string {
	switch name {
	case "fail":
		fmt.Fprint(all["stderr"], "err\n")
		return "42"
	case "flood":
		_, _ = io.CopyN(all["stdout"], zeros{}, flood)
	case "wait":
		_, _ = io.Copy(io.Discard, all["stdin"])
	default:
		_, _ = io.Copy(all["stdout"], all["stdin"])
		fmt.Fprint(all["stdout"], "end\n")
	}
	return "0"
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func openParts(w http.ResponseWriter, r *http.Request) (parts, func()) {
	if wsstream.IsWebSocketRequest(r) {
		return openWebSocket(w, r)
	}
	if _, err := httpstream.Handshake(r, w, []string{"v5.channel.k8s.io", "v4.channel.k8s.io"}); err != nil {
		return nil, nil
	}
	streams := make(chan httpstream.Stream, 5)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if conn == nil {
		return nil, nil
	}
	all := parts{"stdin": nothing{}, "stdout": nothing{}, "stderr": nothing{}}
	for range 3 { // as many as each test opens: error and two more
		select {
		case s := <-streams:
			all[s.Headers().Get("streamType")] = s
		case <-conn.CloseChan():
			return nil, nil
		}
	}
	return all, func() { _ = conn.Close() }
}

func openWebSocket(w http.ResponseWriter, r *http.Request) (parts, func()) {
	channels := []wsstream.ChannelType{wsstream.ReadChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.ReadChannel}
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
		"v5.channel.k8s.io": {Binary: true, Channels: channels},
		"v4.channel.k8s.io": {Binary: true, Channels: channels},
	})
	_, list, err := conn.Open(w, r)
	if err != nil {
		return nil, nil
	}
	return parts{"stdin": list[0], "stdout": list[1], "stderr": list[2], "error": list[3]}, func() { _ = conn.Close() }
}

type nothing struct{}

func (nothing) Read([]byte) (int, error)    { return 0, io.EOF }
func (nothing) Write(b []byte) (int, error) { return len(b), nil }
func (nothing) Close() error                { return nil }

func (f *fakeStreams) ports(w http.ResponseWriter, r *http.Request) {
	f.open.Add(1)
	defer f.open.Done()
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, reply <-chan struct{}) error {
		f.open.Go(func() {
			<-reply
			if s.Headers().Get("streamType") == "data" {
				fmt.Fprintf(s, "port %s: ", s.Headers().Get("port"))
				_, _ = io.Copy(s, s)
			}
			_ = s.Close()
		})
		return nil
	})
	if conn != nil {
		<-conn.CloseChan()
	}
}

// quietLog writes to the test's output.
func quietLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// node is a server with its runtime.
type node struct {
	*Server
	runtime *fakeRuntime
	streams *fakeStreams
	url     string
}

// serveNode serves on loopback until the test ends.
func serveNode(t *testing.T, change func(*Config, *fakeRuntime)) *node {
	t.Helper()
	n := &node{streams: newStreams(t)}
	n.runtime = &fakeRuntime{streams: n.streams.URL, logs: map[string]string{}, ended: map[string]bool{}}
	n.runtime.sandbox = []*runtimeapi.PodSandbox{
		{Id: "s0", Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "default", Name: "web", Uid: "u1"}, CreatedAt: 1},
		{Id: "s1", Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "default", Name: "web", Uid: "u1"}, CreatedAt: 2},
		{Id: "s2", Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "default", Name: "other", Uid: "u2"}, CreatedAt: 3},
	}
	c := Config{Node: fakeNode{webPod()}, Runtime: n.runtime, Log: quietLog(t)}
	if change != nil {
		change(&c, n.runtime)
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	n.Server = s
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.url = "http://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l, nil) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// get asks the handler itself.
func (n *node) get(t *testing.T, method, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	n.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, bytes.NewReader(nil)))
	return w.Code, w.Body.String()
}
