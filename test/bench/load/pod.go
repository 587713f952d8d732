package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/bench/peer"
)

// The names of what is measured. Those of RPCs are the RPCs' own.
const (
	RunPod          = "RunPodSandbox"
	Create          = "CreateContainer"
	StartContainer  = "StartContainer"
	StopContainer   = "StopContainer"
	RemoveContainer = "RemoveContainer"
	StopPod         = "StopPodSandbox"
	RemovePod       = "RemovePodSandbox"
	Exec            = "ExecSync"

	// PodStart is RunPodSandbox, CreateContainer and StartContainer together.
	PodStart = "pod start"
	// FirstLine is PodStart until the container's first line is in its log.
	FirstLine = "first log line"
	// Second is CreateContainer and StartContainer of a second container, together.
	Second = "second container"
	// PodEnd is everything from StopContainer to RemovePodSandbox.
	PodEnd = "stop and remove"
)

// patience is how long a call may take. It decides nothing but when to give up.
const patience = 2 * time.Minute

// grace is what StopContainer asks for. The workload ends at once on SIGTERM, so
// that a stop that takes as long is a failure.
const grace = 60 * time.Second

// Target is a daemon with one of its handlers.
type Target struct {
	System  *peer.System
	Handler string
	// Image is the workload, which System has pulled.
	Image string
	// Times takes what is measured; nil drops it.
	Times *Times
}

// Pod is a pod with one container that runs.
type Pod struct {
	ID, Container string
	name, log     string
}

var serial atomic.Int64

// Up starts a pod and waits for the first line of its container.
func (t Target) Up(ctx context.Context) (*Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	name := fmt.Sprintf("pod%d", serial.Add(1))
	sandbox := t.sandboxConfig(name)
	p := &Pod{name: name, log: filepath.Join(sandbox.LogDirectory, "idle.log")}
	begin := time.Now()
	err := t.take(RunPod, func() error {
		r, err := t.System.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandbox, RuntimeHandler: t.Handler})
		p.ID = r.GetPodSandboxId()
		return err
	})
	if err != nil {
		return p, t.failed(err)
	}
	err = t.take(Create, func() error {
		r, err := t.System.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
			PodSandboxId: p.ID, Config: t.containerConfig(), SandboxConfig: sandbox,
		})
		p.Container = r.GetContainerId()
		return err
	})
	if err != nil {
		return p, t.failed(err)
	}
	err = t.take(StartContainer, func() error {
		_, err := t.System.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: p.Container})
		return err
	})
	if err != nil {
		return p, t.failed(err)
	}
	t.Times.add(PodStart, time.Since(begin))
	if err := p.awaitLine(ctx); err != nil {
		return p, t.failed(err)
	}
	t.Times.add(FirstLine, time.Since(begin))
	return p, nil
}

// Grow starts one more container in a pod, which ends with the pod.
func (t Target) Grow(ctx context.Context, p *Pod) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cfg := t.containerConfig()
	cfg.Metadata.Name, cfg.LogPath = "more", "more.log"
	begin := time.Now()
	r, err := t.System.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.ID, Config: cfg, SandboxConfig: t.sandboxConfig(p.name),
	})
	if err != nil {
		return t.failed(err)
	}
	if _, err := t.System.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: r.ContainerId}); err != nil {
		return t.failed(err)
	}
	t.Times.add(Second, time.Since(begin))
	return nil
}

// awaitLine waits until the workload can be stopped, which it says in its log.
func (p *Pod) awaitLine(ctx context.Context) error {
	for {
		b, err := os.ReadFile(p.log)
		if err == nil && bytes.HasSuffix(b, []byte(" stdout F ready\n")) {
			return nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("read the container's log: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the container's log is %q: %w", b, context.Cause(ctx))
		case <-time.After(200 * time.Microsecond):
		}
	}
}

// Down stops and removes a pod as a kubelet does.
func (t Target) Down(ctx context.Context, p *Pod) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begin := time.Now()
	rt := t.System.Runtime
	for _, step := range []struct {
		name string
		call func() error
	}{
		{StopContainer, func() error {
			_, err := rt.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: p.Container, Timeout: int64(grace.Seconds())})
			return err
		}},
		{StopPod, func() error {
			_, err := rt.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.ID})
			return err
		}},
		{RemoveContainer, func() error {
			_, err := rt.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: p.Container})
			return err
		}},
		{RemovePod, func() error {
			_, err := rt.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.ID})
			return err
		}},
	} {
		if err := t.take(step.name, step.call); err != nil {
			return t.failed(err)
		}
	}
	took := time.Since(begin)
	if took > grace {
		return t.failed(fmt.Errorf("pod %s took %s to stop: its container did not get SIGTERM", p.name, took))
	}
	t.Times.add(PodEnd, took)
	return os.RemoveAll(filepath.Dir(p.log))
}

// Exec runs true in the pod's container.
func (t Target) Exec(ctx context.Context, p *Pod) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return t.take(Exec, func() error {
		r, err := t.System.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: p.Container, Cmd: []string{"true"}, Timeout: 60})
		if err == nil && r.ExitCode != 0 {
			err = fmt.Errorf("true ended with %d: %s", r.ExitCode, r.Stderr)
		}
		return err
	})
}

// take measures one call.
func (t Target) take(name string, call func() error) error {
	begin := time.Now()
	if err := call(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	t.Times.add(name, time.Since(begin))
	return nil
}

func (t Target) failed(err error) error {
	return fmt.Errorf("%s with %s: %w", t.System.Kind, t.Handler, err)
}

func (t Target) sandboxConfig(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Uid: name + "-uid", Namespace: "bench"},
		Hostname:     name,
		LogDirectory: filepath.Join(t.System.Logs, name),
		DnsConfig:    &runtimeapi.DNSConfig{Servers: []string{"10.96.0.10"}, Searches: []string{"bench.svc.cluster.local"}},
		Labels:       map[string]string{"app": "bench"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: t.System.Cgroup,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
		},
	}
}

func (t Target) containerConfig() *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "idle"},
		Image:    &runtimeapi.ImageSpec{Image: t.Image},
		Command:  []string{"/bin/idle"},
		LogPath:  "idle.log",
		Labels:   map[string]string{"app": "bench"},
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{CpuShares: 102, MemoryLimitInBytes: 128 << 20},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
		},
	}
}
