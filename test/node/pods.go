package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SharedPID makes the containers of a pod share one PID namespace.
func SharedPID(p *runtimeapi.PodSandboxConfig) {
	p.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
}

// Handlers are those that every option is tested under, unless the environment
// names others.
var Handlers = handlersOf(os.Getenv("FAIRLEAD_TEST_HANDLERS"))

func handlersOf(named string) []string {
	if named == "" {
		return []string{"runc", "crun"}
	}
	return strings.Split(named, ",")
}

// UnderEach runs f under every handler, on one node for both.
func UnderEach(t *testing.T, f func(t *testing.T, n *Node, handler string), options ...Option) {
	t.Helper()
	underEach(t, Start(t, "", options...), Handlers, f)
}

// UnderAll is UnderEach for what is the same in a sandbox: it runs f under gVisor,
// too, where that is installed.
func UnderAll(t *testing.T, f func(t *testing.T, n *Node, handler string), options ...Option) {
	t.Helper()
	UnderEach(t, f, options...)
	if path := Runsc(); path != "" {
		underEach(t, Start(t, RunscConfig(path), options...), []string{"runsc"}, f)
	}
}

// Runsc is gVisor's program: what FAIRLEAD_TEST_RUNSC names, or the one on PATH, or
// "".
func Runsc() string {
	if path := os.Getenv("FAIRLEAD_TEST_RUNSC"); path != "" {
		return path
	}
	path, _ := exec.LookPath("runsc")
	return path
}

// RunscConfig has gVisor alone, as handler "runsc".
func RunscConfig(path string) string { return fmt.Sprintf("[handlers.runsc]\npath = %q\n", path) }

func underEach(t *testing.T, n *Node, handlers []string, f func(t *testing.T, n *Node, handler string)) {
	t.Helper()
	n.Pull(Busybox)
	for _, h := range handlers {
		t.Run(h, func(t *testing.T) {
			outer := n.T
			n.T = t
			defer func() { n.T = outer }()
			f(t, n, h)
		})
	}
}

// Ctx lasts as long as anything may take.
func (n *Node) Ctx() context.Context {
	n.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	n.T.Cleanup(cancel)
	return ctx
}

// Pull pulls an image and returns its id.
func (n *Node) Pull(ref string) string {
	n.T.Helper()
	r, err := n.Images.PullImage(n.Ctx(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	if err != nil {
		n.T.Fatalf("pull %s: %v", ref, err)
	}
	return r.ImageRef
}

var serial atomic.Int64

// Sandbox is a pod of a test.
type Sandbox struct {
	Node   *Node
	ID     string
	Config *runtimeapi.PodSandboxConfig
}

// PodConfig is a pod with namespaces as the kubelet asks for by default.
func (n *Node) PodConfig(change ...func(*runtimeapi.PodSandboxConfig)) *runtimeapi.PodSandboxConfig {
	name := fmt.Sprintf("pod%d", serial.Add(1))
	c := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Uid: name + "-uid", Namespace: "test"},
		Hostname:     name,
		LogDirectory: filepath.Join(n.Logs, name),
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

// RunPod starts a pod under a handler; "" is the default one.
func (n *Node) RunPod(handler string, change ...func(*runtimeapi.PodSandboxConfig)) *Sandbox {
	n.T.Helper()
	c, ctx := n.PodConfig(change...), n.Ctx()
	q := &runtimeapi.RunPodSandboxRequest{Config: c, RuntimeHandler: handler}
	r, err := n.Runtime.RunPodSandbox(ctx, q)
	for busy(err) && ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
		r, err = n.Runtime.RunPodSandbox(ctx, q)
	}
	if err != nil {
		n.T.Fatalf("run pod: %v", err)
	}
	n.ids.add(r.PodSandboxId)
	return &Sandbox{Node: n, ID: r.PodSandboxId, Config: c}
}

// busy tells whether a handler is refused because its trial takes long, or took
// too long, which the daemon repeats and gives more time then.
func busy(err error) bool {
	said := status.Convert(err).Message()
	return status.Code(err) == codes.Unavailable && (strings.Contains(said, "did not end in time") || strings.Contains(said, "still being tried"))
}

// Know notes the id of a pod or container that was made without this package's
// help, for Left.
func (n *Node) Know(id string) { n.ids.add(id) }

// Remove stops and removes the pod now, not at the end of the test.
func (s *Sandbox) Remove() {
	s.Node.T.Helper()
	if _, err := s.Node.Runtime.StopPodSandbox(s.Node.Ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.ID}); err != nil {
		s.Node.T.Fatalf("stop pod: %v", err)
	}
	if _, err := s.Node.Runtime.RemovePodSandbox(s.Node.Ctx(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.ID}); err != nil {
		s.Node.T.Fatalf("remove pod: %v", err)
	}
}

// Container is a container of a test.
type Container struct {
	Sandbox *Sandbox
	ID      string
	Config  *runtimeapi.ContainerConfig
}

// Script is a container that runs a shell script in busybox.
func Script(text string) *runtimeapi.ContainerConfig {
	name := fmt.Sprintf("c%d", serial.Add(1))
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: Busybox},
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

// TryCreate creates a container and returns what the runtime says.
func (s *Sandbox) TryCreate(c *runtimeapi.ContainerConfig) (string, error) {
	r, err := s.Node.Runtime.CreateContainer(s.Node.Ctx(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: s.ID, Config: c, SandboxConfig: s.Config,
	})
	if err == nil {
		s.Node.ids.add(r.ContainerId)
	}
	return r.GetContainerId(), err
}

// Create creates a container.
func (s *Sandbox) Create(c *runtimeapi.ContainerConfig) *Container {
	s.Node.T.Helper()
	id, err := s.TryCreate(c)
	if err != nil {
		s.Node.T.Fatalf("create container: %v", err)
	}
	return &Container{Sandbox: s, ID: id, Config: c}
}

// TryStart starts a created container and returns what the runtime says.
func (c *Container) TryStart() error {
	_, err := c.Sandbox.Node.Runtime.StartContainer(c.Sandbox.Node.Ctx(), &runtimeapi.StartContainerRequest{ContainerId: c.ID})
	return err
}

// Start creates and starts a container.
func (s *Sandbox) Start(c *runtimeapi.ContainerConfig) *Container {
	s.Node.T.Helper()
	out := s.Create(c)
	if err := out.TryStart(); err != nil {
		s.Node.T.Fatalf("start container: %v", err)
	}
	return out
}

// Status is what the runtime says of the container.
func (c *Container) Status() *runtimeapi.ContainerStatus {
	c.Sandbox.Node.T.Helper()
	r, err := c.Sandbox.Node.Runtime.ContainerStatus(c.Sandbox.Node.Ctx(), &runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
	if err != nil {
		c.Sandbox.Node.T.Fatalf("container status: %v", err)
	}
	return r.Status
}

// Wait waits for the container's end.
func (c *Container) Wait() *runtimeapi.ContainerStatus {
	c.Sandbox.Node.T.Helper()
	for end := time.Now().Add(Patience); ; time.Sleep(5 * time.Millisecond) {
		st := c.Status()
		if st.State == runtimeapi.ContainerState_CONTAINER_EXITED {
			return st
		}
		if time.Now().After(end) {
			c.Sandbox.Node.T.Fatalf("container %s does not end; its log:\n%s", c.Config.Metadata.Name, c.Log())
		}
	}
}

// Stop stops the container, with a grace in seconds.
func (c *Container) Stop(grace int64) {
	c.Sandbox.Node.T.Helper()
	if _, err := c.Sandbox.Node.Runtime.StopContainer(c.Sandbox.Node.Ctx(), &runtimeapi.StopContainerRequest{ContainerId: c.ID, Timeout: grace}); err != nil {
		c.Sandbox.Node.T.Fatalf("stop container: %v", err)
	}
}

// Remove removes the container.
func (c *Container) Remove() {
	c.Sandbox.Node.T.Helper()
	if _, err := c.Sandbox.Node.Runtime.RemoveContainer(c.Sandbox.Node.Ctx(), &runtimeapi.RemoveContainerRequest{ContainerId: c.ID}); err != nil {
		c.Sandbox.Node.T.Fatalf("remove container: %v", err)
	}
}

// LogPath is the log file on the host.
func (c *Container) LogPath() string {
	return filepath.Join(c.Sandbox.Config.LogDirectory, c.Config.LogPath)
}

// Log is what the container printed, without the stamps.
func (c *Container) Log() string {
	c.Sandbox.Node.T.Helper()
	raw, err := os.ReadFile(c.LogPath())
	if err != nil {
		c.Sandbox.Node.T.Fatalf("read log: %v", err)
	}
	text, err := Text(string(raw))
	if err != nil {
		c.Sandbox.Node.T.Fatal(err)
	}
	return text
}

// Text is what a container has written, out of its log: lines may be there in
// parts, those of a terminal above all.
func Text(log string) (string, error) {
	var b strings.Builder
	for line := range strings.Lines(log) {
		parts := strings.SplitN(line, " ", 4)
		if len(parts) != 4 {
			return "", fmt.Errorf("malformed log line %q", line)
		}
		text := parts[3]
		if parts[2] == "P" {
			text = strings.TrimSuffix(text, "\n")
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// Exec runs a command in the container and returns its standard output.
func (c *Container) Exec(command ...string) string {
	c.Sandbox.Node.T.Helper()
	r, err := c.Sandbox.Node.Runtime.ExecSync(c.Sandbox.Node.Ctx(), &runtimeapi.ExecSyncRequest{ContainerId: c.ID, Cmd: command, Timeout: 30})
	if err != nil {
		c.Sandbox.Node.T.Fatalf("exec %q: %v", command, err)
	}
	if r.ExitCode != 0 {
		c.Sandbox.Node.T.Fatalf("exec %q: exit code %d: %s%s", command, r.ExitCode, r.Stdout, r.Stderr)
	}
	return string(r.Stdout)
}

// Inside runs a script to its end in a pod of its own and returns what it
// printed. change may be given nil.
func (n *Node) Inside(handler, text string, change func(*runtimeapi.ContainerConfig), pod ...func(*runtimeapi.PodSandboxConfig)) string {
	n.T.Helper()
	s := n.RunPod(handler, pod...)
	cfg := Script(text)
	if change != nil {
		change(cfg)
	}
	c := s.Start(cfg)
	st := c.Wait()
	out := c.Log()
	if st.ExitCode != 0 {
		n.T.Fatalf("exit code %d (%s %s): %s", st.ExitCode, st.Reason, st.Message, out)
	}
	s.Remove()
	return out
}

// TryPull pulls an image and returns what the runtime says.
func (n *Node) TryPull(ref string) (string, error) {
	r, err := n.Images.PullImage(n.Ctx(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	return r.GetImageRef(), err
}
