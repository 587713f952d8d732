package cri

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// handlers are those that every option is tested under.
var handlers = []string{"runc", "crun"}

// underEach runs f under every handler, on one node for both.
func underEach(t *testing.T, f func(t *testing.T, n *node, handler string)) {
	t.Helper()
	n := startNode(t, "")
	n.pull(busybox)
	for _, h := range handlers {
		t.Run(h, func(t *testing.T) {
			outer := n.t
			n.t = t
			defer func() { n.t = outer }()
			f(t, n, h)
		})
	}
}

func (n *node) ctx() context.Context {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	n.t.Cleanup(cancel)
	return ctx
}

func (n *node) pull(ref string) string {
	n.t.Helper()
	r, err := n.images.PullImage(n.ctx(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	if err != nil {
		n.t.Fatalf("pull %s: %v", ref, err)
	}
	return r.ImageRef
}

var serial atomic.Int64

// sandbox is a pod of a test.
type sandbox struct {
	n      *node
	id     string
	config *runtimeapi.PodSandboxConfig
}

// podConfig is a pod with namespaces as the kubelet asks for by default.
func (n *node) podConfig(change ...func(*runtimeapi.PodSandboxConfig)) *runtimeapi.PodSandboxConfig {
	name := fmt.Sprintf("pod%d", serial.Add(1))
	c := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Uid: name + "-uid", Namespace: "test"},
		Hostname:     name,
		LogDirectory: filepath.Join(n.logs, name),
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func (n *node) runPod(handler string, change ...func(*runtimeapi.PodSandboxConfig)) *sandbox {
	n.t.Helper()
	c := n.podConfig(change...)
	r, err := n.runtime.RunPodSandbox(n.ctx(), &runtimeapi.RunPodSandboxRequest{Config: c, RuntimeHandler: handler})
	if err != nil {
		n.t.Fatalf("run pod: %v", err)
	}
	n.ids[r.PodSandboxId] = true
	return &sandbox{n, r.PodSandboxId, c}
}

// remove stops and removes the pod now, not at the end of the test.
func (s *sandbox) remove() {
	s.n.t.Helper()
	if _, err := s.n.runtime.StopPodSandbox(s.n.ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.id}); err != nil {
		s.n.t.Fatalf("stop pod: %v", err)
	}
	if _, err := s.n.runtime.RemovePodSandbox(s.n.ctx(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.id}); err != nil {
		s.n.t.Fatalf("remove pod: %v", err)
	}
}

// container is a container of a test.
type container struct {
	s      *sandbox
	id     string
	config *runtimeapi.ContainerConfig
}

// script is a container that runs a shell script in busybox.
func script(text string) *runtimeapi.ContainerConfig {
	name := fmt.Sprintf("c%d", serial.Add(1))
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: busybox},
		Command:  []string{"sh", "-c", text},
		LogPath:  name + ".log",
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			},
		},
	}
}

// tryCreate creates a container and returns what the runtime says.
func (s *sandbox) tryCreate(c *runtimeapi.ContainerConfig) (string, error) {
	r, err := s.n.runtime.CreateContainer(s.n.ctx(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: s.id, Config: c, SandboxConfig: s.config,
	})
	if err == nil {
		s.n.ids[r.ContainerId] = true
	}
	return r.GetContainerId(), err
}

func (s *sandbox) create(c *runtimeapi.ContainerConfig) *container {
	s.n.t.Helper()
	id, err := s.tryCreate(c)
	if err != nil {
		s.n.t.Fatalf("create container: %v", err)
	}
	return &container{s, id, c}
}

func (c *container) tryStart() error {
	_, err := c.s.n.runtime.StartContainer(c.s.n.ctx(), &runtimeapi.StartContainerRequest{ContainerId: c.id})
	return err
}

// start creates and starts a container.
func (s *sandbox) start(c *runtimeapi.ContainerConfig) *container {
	s.n.t.Helper()
	out := s.create(c)
	if err := out.tryStart(); err != nil {
		s.n.t.Fatalf("start container: %v", err)
	}
	return out
}

func (c *container) status() *runtimeapi.ContainerStatus {
	c.s.n.t.Helper()
	r, err := c.s.n.runtime.ContainerStatus(c.s.n.ctx(), &runtimeapi.ContainerStatusRequest{ContainerId: c.id})
	if err != nil {
		c.s.n.t.Fatalf("container status: %v", err)
	}
	return r.Status
}

// wait waits for the container's end.
func (c *container) wait() *runtimeapi.ContainerStatus {
	c.s.n.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		st := c.status()
		if st.State == runtimeapi.ContainerState_CONTAINER_EXITED {
			return st
		}
		if time.Now().After(end) {
			c.s.n.t.Fatalf("container %s does not end; its log:\n%s", c.config.Metadata.Name, c.log())
		}
	}
}

func (c *container) stop(grace int64) {
	c.s.n.t.Helper()
	if _, err := c.s.n.runtime.StopContainer(c.s.n.ctx(), &runtimeapi.StopContainerRequest{ContainerId: c.id, Timeout: grace}); err != nil {
		c.s.n.t.Fatalf("stop container: %v", err)
	}
}

func (c *container) remove() {
	c.s.n.t.Helper()
	if _, err := c.s.n.runtime.RemoveContainer(c.s.n.ctx(), &runtimeapi.RemoveContainerRequest{ContainerId: c.id}); err != nil {
		c.s.n.t.Fatalf("remove container: %v", err)
	}
}

func (c *container) logPath() string {
	return filepath.Join(c.s.config.LogDirectory, c.config.LogPath)
}

// log is what the container printed, without the stamps.
func (c *container) log() string {
	c.s.n.t.Helper()
	raw, err := os.ReadFile(c.logPath())
	if err != nil {
		c.s.n.t.Fatalf("read log: %v", err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(raw)) {
		parts := strings.SplitN(line, " ", 4)
		if len(parts) != 4 {
			c.s.n.t.Fatalf("malformed log line %q", line)
		}
		text := parts[3]
		if parts[2] == "P" {
			text = strings.TrimSuffix(text, "\n")
		}
		b.WriteString(text)
	}
	return b.String()
}

// exec runs a command in the container and returns its standard output.
func (c *container) exec(command ...string) string {
	c.s.n.t.Helper()
	r, err := c.s.n.runtime.ExecSync(c.s.n.ctx(), &runtimeapi.ExecSyncRequest{ContainerId: c.id, Cmd: command, Timeout: 30})
	if err != nil {
		c.s.n.t.Fatalf("exec %q: %v", command, err)
	}
	if r.ExitCode != 0 {
		c.s.n.t.Fatalf("exec %q: exit code %d: %s%s", command, r.ExitCode, r.Stdout, r.Stderr)
	}
	return string(r.Stdout)
}

// inside runs a script to its end in a pod of its own and returns what it
// printed. change may be given nil.
func (n *node) inside(handler, text string, change func(*runtimeapi.ContainerConfig), pod ...func(*runtimeapi.PodSandboxConfig)) string {
	n.t.Helper()
	s := n.runPod(handler, pod...)
	cfg := script(text)
	if change != nil {
		change(cfg)
	}
	c := s.start(cfg)
	st := c.wait()
	out := c.log()
	if st.ExitCode != 0 {
		n.t.Fatalf("exit code %d (%s %s): %s", st.ExitCode, st.Reason, st.Message, out)
	}
	s.remove()
	return out
}

// must compares what a container printed, without spaces around it.
func must(t *testing.T, got, want string) {
	t.Helper()
	if strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// mustContain looks for lines.
func mustContain(t *testing.T, got string, lines ...string) {
	t.Helper()
	have := strings.Split(got, "\n")
	for _, line := range lines {
		if !slices.Contains(have, line) {
			t.Errorf("no line %q in %q", line, got)
		}
	}
}
