package fakeruntime

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is one. Make it by New.
//
// Its calls have names, by which tests ask for them: "run POD", "create POD/CONTAINER",
// "start POD/CONTAINER", "exec POD/CONTAINER COMMAND", "checkpoint POD/CONTAINER", "stop POD/CONTAINER in 30s", "remove
// POD/CONTAINER", "stop sandbox POD", "remove sandbox POD", "resize POD/CONTAINER", "resize sandbox POD" and "pull IMAGE". Three stand for
// what only asks: "list" for all of that, "look at UID" for the list of a pod's
// containers, and "status POD/CONTAINER".
type Runtime struct {
	runtimeapi.RuntimeServiceClient
	Images *Images

	mu       sync.Mutex
	state    state
	calls    []string // in order
	asked    int      // calls that change nothing
	fail     map[string]error
	hang     map[string]<-chan struct{}
	stubborn bool
	exec     Exec

	listeners map[chan *runtimeapi.ContainerEventResponse]bool
}

// Exec is what a command in a container does, with its exit code. The container is
// POD/CONTAINER.
type Exec func(ctx context.Context, container string, command []string) (int32, error)

// state is what a reboot takes away.
type state struct {
	number     int
	sandboxes  map[string]*runtimeapi.PodSandboxStatus
	configs    map[string]*runtimeapi.PodSandboxConfig // by sandbox
	containers map[string]*container
	process    string
	handlers   []string // that were added
}

// container is one with what it was made of. The status is replaced and never changed,
// as others may read it.
type container struct {
	sandbox string
	name    string // POD/CONTAINER
	config  *runtimeapi.ContainerConfig
	status  *runtimeapi.ContainerStatus
	uses    uint64 // bytes of memory
}

// New makes a Runtime that has nothing.
func New() *Runtime {
	f := &Runtime{fail: map[string]error{}, hang: map[string]<-chan struct{}{}, listeners: map[chan *runtimeapi.ContainerEventResponse]bool{}}
	f.Images = &Images{f: f, present: map[string]bool{}, passwords: map[string]string{}}
	f.Reboot()
	return f
}

// Reboot takes away all sandboxes and containers, and tells nobody. Images stay.
func (f *Runtime) Reboot() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = state{
		number: f.state.number, sandboxes: map[string]*runtimeapi.PodSandboxStatus{},
		configs: map[string]*runtimeapi.PodSandboxConfig{}, containers: map[string]*container{},
	}
}

// Fail has calls of that name fail; nil has them succeed again.
func (f *Runtime) Fail(call string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail[call] = err
}

// Hang has calls of that name wait until something is closed, which may be nil, or until
// their context ends.
func (f *Runtime) Hang(call string, until <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hang[call] = until
}

// Process is what the runtime says of its process, as JSON; nothing without that.
func (f *Runtime) Process(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.process = text
}

// AddHandler has the runtime work with one more handler.
func (f *Runtime) AddHandler(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.handlers = append(f.state.handlers, name)
}

// Stubborn has containers use all of their grace period.
func (f *Runtime) Stubborn() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stubborn = true
}

// OnExec says what commands do, which else end with 0.
func (f *Runtime) OnExec(do Exec) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.exec = do
}

// Calls are those whose names begin so, in their order.
func (f *Runtime) Calls(prefix string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, c := range f.calls {
		if strings.HasPrefix(c, prefix) {
			out = append(out, c)
		}
	}
	return out
}

// Of is what was done with a container, POD/CONTAINER, without its name: "create, start,
// exec pre, stop in 30s".
func (f *Runtime) Of(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, c := range f.calls {
		if verb, rest, _ := strings.Cut(c, " "); rest == name || strings.HasPrefix(rest, name+" ") {
			out = append(out, verb+strings.TrimPrefix(rest, name))
		}
	}
	return strings.Join(out, ", ")
}

// Asked is how many calls there were that change nothing.
func (f *Runtime) Asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// begin notes a call, and gives what was prepared for it. The caller holds mu after it.
func (f *Runtime) begin(ctx context.Context, call string) error {
	f.mu.Lock()
	f.calls = append(f.calls, call)
	if err := f.wait(ctx, call); err != nil {
		return err
	}
	return f.fail[call]
}

// wait waits for what a call is to hang until. The caller holds mu, but not meanwhile.
func (f *Runtime) wait(ctx context.Context, call string) error {
	until, hangs := f.hang[call]
	if !hangs {
		return nil
	}
	f.mu.Unlock()
	defer f.mu.Lock()
	select {
	case <-until:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask notes a question. The caller holds mu after it.
func (f *Runtime) ask() error {
	f.mu.Lock()
	f.asked++
	return f.fail["list"]
}

func (s *state) id(kind string) string {
	s.number++
	return fmt.Sprintf("%s%d", kind, s.number)
}

// sorted are the values of a map by its keys.
func sorted[V any](m map[string]V) []V {
	out := make([]V, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
}

// Version implements runtimeapi.RuntimeServiceClient.
func (*Runtime) Version(context.Context, *runtimeapi.VersionRequest, ...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "fake", RuntimeVersion: "1", RuntimeApiVersion: "v1"}, nil
}

// Status implements runtimeapi.RuntimeServiceClient: it has runc, which is the default,
// and crun does not work.
func (f *Runtime) Status(context.Context, *runtimeapi.StatusRequest, ...grpc.CallOption) (*runtimeapi.StatusResponse, error) {
	err := f.ask()
	defer f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	handlers := []*runtimeapi.RuntimeHandler{{}, {Name: "runc"}}
	for _, name := range f.state.handlers {
		handlers = append(handlers, &runtimeapi.RuntimeHandler{Name: name})
	}
	return &runtimeapi.StatusResponse{
		Status:          &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true}}},
		RuntimeHandlers: handlers,
		Info:            map[string]string{"handlers": `{"runc":{"default":true,"ready":true},"crun":{"reason":"it fell over"}}`, "process": f.state.process},
	}, nil
}

// ListPodSandboxStats implements runtimeapi.RuntimeServiceClient: it measures nothing.
func (*Runtime) ListPodSandboxStats(context.Context, *runtimeapi.ListPodSandboxStatsRequest, ...grpc.CallOption) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	return &runtimeapi.ListPodSandboxStatsResponse{}, nil
}
