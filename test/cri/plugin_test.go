package cri

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// plugin is an NRI plugin in the test's own process. It notes what it is told;
// what it answers is in the functions, which are set before it connects.
type plugin struct {
	Stub stub.Stub

	onCreate func(*api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error)
	onUpdate func(*api.Container, *api.LinuxResources) ([]*api.ContainerUpdate, error)
	onStop   func(*api.Container) ([]*api.ContainerUpdate, error)
	onSync   func([]*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error)
	onRun    func(*api.PodSandbox) error
	judge    func(*api.ValidateContainerAdjustmentRequest) error

	mu     sync.Mutex
	events []event
	closed chan struct{}
}

// event is one that a plugin was told of.
type event struct {
	name      string
	pod       *api.PodSandbox
	container *api.Container
}

// connect registers a plugin with a node and returns when it was synchronised.
func connect(t *testing.T, n *node.Node, index, name string, p *plugin) *plugin {
	t.Helper()
	p.closed = make(chan struct{})
	synced := make(chan struct{})
	see := p.onSync
	p.onSync = func(pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
		defer close(synced)
		if see == nil {
			return nil, nil
		}
		return see(pods, containers)
	}
	var err error
	p.Stub, err = stub.New(p, stub.WithPluginIdx(index), stub.WithPluginName(name), stub.WithSocketPath(pluginSocket(n)),
		stub.WithOnClose(func() { close(p.closed) }))
	if err != nil {
		t.Fatal(err)
	}
	node.Eventually(t, "a started daemon listens for plugins", func() bool {
		err = p.Stub.Start(t.Context())
		return !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stub.Stop)
	select {
	case <-synced:
	case <-time.After(node.Patience):
		t.Fatal("the plugin is not synchronised")
	}
	return p
}

func pluginSocket(n *node.Node) string { return filepath.Join(n.State, "nri.sock") }

func (p *plugin) note(name string, s *api.PodSandbox, c *api.Container) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, event{name, s, c})
}

// of are the names of the events that it was told of a pod or a container.
func (p *plugin) of(id string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, e := range p.events {
		if e.container.GetId() == id || e.container == nil && e.pod.GetId() == id {
			out = append(out, e.name)
		}
	}
	return out
}

// find is the first event of that name about a container or a pod.
func (p *plugin) find(name, id string) *event {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		if e.name == name && (e.container.GetId() == id || e.pod.GetId() == id) {
			return &e
		}
	}
	return nil
}

// told waits until exactly these events were told of a pod or a container.
func (p *plugin) told(t *testing.T, id string, want ...string) {
	t.Helper()
	for end := time.Now().Add(node.Patience); ; time.Sleep(5 * time.Millisecond) {
		got := p.of(id)
		if slices.Equal(got, want) {
			return
		}
		if len(got) > len(want) || time.Now().After(end) {
			t.Fatalf("the plugin was told %v, want %v", got, want)
		}
	}
}

func (p *plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	return p.onSync(pods, containers)
}

func (p *plugin) RunPodSandbox(_ context.Context, s *api.PodSandbox) error {
	p.note("RunPodSandbox", s, nil)
	if p.onRun != nil {
		return p.onRun(s)
	}
	return nil
}

func (p *plugin) UpdatePodSandbox(_ context.Context, s *api.PodSandbox, overhead, limits *api.LinuxResources) error {
	p.note(fmt.Sprintf("UpdatePodSandbox %d %d", overhead.GetMemory().GetLimit().GetValue(), limits.GetMemory().GetLimit().GetValue()), s, nil)
	return nil
}

func (p *plugin) PostUpdatePodSandbox(_ context.Context, s *api.PodSandbox) error {
	p.note("PostUpdatePodSandbox", s, nil)
	return nil
}

func (p *plugin) StopPodSandbox(_ context.Context, s *api.PodSandbox) error {
	p.note("StopPodSandbox", s, nil)
	return nil
}

func (p *plugin) RemovePodSandbox(_ context.Context, s *api.PodSandbox) error {
	p.note("RemovePodSandbox", s, nil)
	return nil
}

func (p *plugin) CreateContainer(_ context.Context, s *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	p.note("CreateContainer", s, c)
	if p.onCreate == nil {
		return nil, nil, nil
	}
	return p.onCreate(s, c)
}

func (p *plugin) PostCreateContainer(_ context.Context, s *api.PodSandbox, c *api.Container) error {
	p.note("PostCreateContainer", s, c)
	return nil
}

func (p *plugin) StartContainer(_ context.Context, s *api.PodSandbox, c *api.Container) error {
	p.note("StartContainer", s, c)
	return nil
}

func (p *plugin) PostStartContainer(_ context.Context, s *api.PodSandbox, c *api.Container) error {
	p.note("PostStartContainer", s, c)
	return nil
}

func (p *plugin) UpdateContainer(_ context.Context, s *api.PodSandbox, c *api.Container, r *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	p.note("UpdateContainer", s, c)
	if p.onUpdate == nil {
		return nil, nil
	}
	return p.onUpdate(c, r)
}

func (p *plugin) PostUpdateContainer(_ context.Context, s *api.PodSandbox, c *api.Container) error {
	p.note("PostUpdateContainer", s, c)
	return nil
}

func (p *plugin) StopContainer(_ context.Context, s *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	p.note("StopContainer", s, c)
	if p.onStop == nil {
		return nil, nil
	}
	return p.onStop(c)
}

func (p *plugin) RemoveContainer(_ context.Context, s *api.PodSandbox, c *api.Container) error {
	p.note("RemoveContainer", s, c)
	return nil
}

func (p *plugin) ValidateContainerAdjustment(_ context.Context, r *api.ValidateContainerAdjustmentRequest) error {
	if p.judge == nil {
		return nil
	}
	return p.judge(r)
}

// limit is an update of a container's memory, in bytes.
func limit(id string, memory int64) *api.ContainerUpdate {
	u := &api.ContainerUpdate{}
	u.SetContainerId(id)
	u.SetLinuxMemoryLimit(memory)
	return u
}

func memoryLimit(c *node.Container) string {
	return c.CgroupFile("memory", "memory.limit_in_bytes", "memory.max")
}

func updateMemory(n *node.Node, id string, memory int64) error {
	_, err := n.Runtime.UpdateContainerResources(n.Ctx(), &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: memory},
	})
	return err
}

// oldCrun says whether this host's crun is older than the scheduler in its
// configuration.
func oldCrun(t *testing.T) bool {
	t.Helper()
	out, err := exec.Command("crun", "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.HasPrefix(string(out), "crun version 1.8.1\n")
}
