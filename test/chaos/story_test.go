package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/images"
	"fairlead.run/test/node"
)

// request is one thing that a caller asks for, and may ask for again.
type request struct {
	name string
	do   func() error
	// makes says that it makes something, of which a failure leaves nothing.
	makes bool
}

// story is all that a caller does with one pod or with two images, from the
// start of the daemon to its end. It passes every place but those of recovery.
type story struct {
	ground
	n       *node.Node
	tag     string // the image of the pod's containers
	pulled  string // another image in the registry, which no container has
	archive string // a file with another image
	volume  string // a folder that containers of a pod with a user namespace have

	pod *node.Sandbox
	// first is stopped and removed by itself, second with the pod, and refused
	// names a program that is not there.
	first, second, refused *node.Container
}

// The requests that are none to the daemon.
const (
	startDaemon = "start the daemon"
	endDaemon   = "end the daemon"
)

const importedName = "localhost/imported:1"

// newStory writes what the caller has before it asks for anything.
func newStory(t *testing.T, n *node.Node, g ground) *story {
	t.Helper()
	tag, err := node.PushImage("chaos/image:1", ocispec.ImageConfig{Env: []string{"PATH=/bin"}, Volumes: map[string]struct{}{"/data": {}}})
	if err != nil {
		t.Fatal(err)
	}
	st := &story{ground: g, n: n, tag: tag, archive: filepath.Join(n.Dir, "archive.tar"), volume: filepath.Join(n.Dir, "volume")}
	if err := os.MkdirAll(st.volume, 0o755); err != nil {
		t.Fatal(err)
	}
	layer := func(text string) images.Layer {
		return images.Layer{Files: map[string]images.File{text: {Body: []byte(text)}}}
	}
	pulled, err := images.Build(images.Spec{Layers: []images.Layer{layer("first"), layer("second")}})
	if err != nil {
		t.Fatal(err)
	}
	st.pulled = node.Registry.Push("chaos/pulled:1", pulled)
	img, err := images.Build(images.Spec{Layers: []images.Layer{layer("imported")}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(st.archive)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(images.WriteOCI(f, images.Named{Image: img, Names: []string{importedName}}), f.Close())
	if err != nil {
		t.Fatal(err)
	}
	st.describe()
	return st
}

// describe makes the configurations of a pod and containers that never existed.
func (st *story) describe() {
	st.pod = &node.Sandbox{Node: st.n, Config: st.n.PodConfig(node.SharedPID, func(p *runtimeapi.PodSandboxConfig) {
		p.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: st.port, Protocol: runtimeapi.Protocol_UDP}}
		if st.mapped {
			p.Linux.SecurityContext.NamespaceOptions.UsernsOptions = userNamespace()
		}
	})}
	st.first, st.second, st.refused = st.container(), st.container(), st.container()
	st.first.Config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/image", Readonly: true, Image: &runtimeapi.ImageSpec{Image: st.tag}}}
	st.refused.Config.Command = []string{"/no/such/program"}
	st.refused.Config.LogPath = "" // two logs are enough
}

// container is one that ends at once when it is asked to, and reads its input.
func (st *story) container() *node.Container {
	c := node.Script("trap 'exit 0' TERM; while :; do echo tick; sleep 0.05; done")
	c.Image.Image = st.tag
	c.Stdin = true
	c.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
	if u := userNamespace(); st.mapped {
		c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = u
		c.Mounts = []*runtimeapi.Mount{{HostPath: st.volume, ContainerPath: "/volume", UidMappings: u.Uids, GidMappings: u.Gids}}
	}
	return &node.Container{Sandbox: st.pod, Config: c}
}

// mappedID is the id on the node of root in the pods of these stories, and of
// nobody else's.
const mappedID = 1<<21 + 4711

func userNamespace() *runtimeapi.UserNamespace {
	ids := []*runtimeapi.IDMapping{{HostId: mappedID, Length: 1 << 16}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}
}

// inUserNamespaces are the processes that have the user namespace of a story's
// pod, those too that are in none of its cgroups.
func inUserNamespaces() (out []string) {
	maps, _ := filepath.Glob("/proc/[0-9]*/uid_map")
	for _, m := range maps {
		if text, err := os.ReadFile(m); err == nil && slices.Contains(strings.Fields(string(text)), strconv.Itoa(mappedID)) {
			out = append(out, "in a user namespace "+filepath.Dir(m))
		}
	}
	return out
}

// requests are what passes a place. The first starts the daemon, the last ends
// it. The image of a pod stays: the next story has it already.
func (st *story) requests(place string) []request {
	all := []request{{name: startDaemon, do: st.n.TryStart}}
	switch {
	case strings.HasPrefix(place, "image."):
		all = append(all, st.imageRequests()...)
	case strings.HasPrefix(place, "handlers."):
		all = append(all, st.handlerRequests()...)
	case place == "stop.killed":
		pods := st.podRequests()
		last := slices.IndexFunc(pods, func(r request) bool { return r.name == "stop the pod" })
		all = append(all, slices.Insert(pods, last, st.stubbornRequests()...)...)
	default:
		all = append(all, st.podRequests()...)
	}
	return append(all, request{name: endDaemon, do: st.end})
}

func (st *story) imageRequests() []request {
	return []request{
		{name: "pull", makes: true, do: func() error { _, err := st.n.TryPull(st.pulled); return err }},
		{name: "import", makes: true, do: func() error { _, err := st.n.CLI("image", "import", st.archive); return err }},
		{name: "remove the image", do: func() error { return st.removeImage(st.pulled) }},
		{name: "remove the imported image", do: func() error { return st.removeImage(importedName) }},
	}
}

func (st *story) podRequests() []request {
	return []request{
		{name: "have the image", do: func() error { _, err := st.n.TryPull(st.tag); return err }},
		{name: "run the pod", makes: true, do: st.run},
		{name: "create the first container", makes: true, do: func() error { return st.create(st.first) }},
		{name: "create the second container", makes: true, do: func() error { return st.create(st.second) }},
		{name: "create a container that cannot start", makes: true, do: func() error { return st.create(st.refused) }},
		{name: "update before the start", do: func() error { return st.update(st.first, 100) }},
		{name: "start the first container", do: st.tryFirst},
		{name: "update", do: func() error { return st.update(st.first, 200) }},
		{name: "exec", do: st.exec},
		{name: "attach", do: st.attach},
		{name: "start the second container", do: st.second.TryStart},
		{name: "start what cannot start", do: st.startRefused},
		{name: "stop the first container", do: st.stopFirst},
		{name: "remove the first container", do: st.removeFirst},
		{name: "stop the pod", do: st.stopPod},
		{name: "remove the pod", do: st.removePod},
	}
}

// handlerRequests add a handler, change it and remove it under its pod.
func (st *story) handlerRequests() []request {
	const name = "extra"
	command := func(args ...string) func() error {
		return func() error {
			_, err := st.n.CLI(append([]string{"handlers"}, args...)...)
			return err
		}
	}
	remove := func() error {
		err := command("rm", name)()
		if err != nil && strings.Contains(err.Error(), "no handler of that name was added") {
			return nil // and the answer was lost
		}
		return err
	}
	on := *st
	on.handler = name
	gone := func() error {
		out, err := st.n.CLI("handlers")
		if err == nil && strings.Contains(out, name) {
			err = fmt.Errorf("the handler that was removed is still there: %s", out)
		}
		return err
	}
	return []request{
		{name: "add a handler", do: command("add", name, "path="+st.program())},
		{name: "run the pod", makes: true, do: on.run},
		{name: "change the handler", do: command("set", name, "privileged_without_host_devices=true")},
		{name: "remove the handler", do: remove},
		{name: "stop the pod", do: on.stopPod},
		{name: "remove the pod", do: on.removePod},
		{name: "look for the handler", do: gone},
	}
}

// program is that of the ground's handler.
func (st *story) program() string {
	path, err := exec.LookPath(st.ground.handler)
	if err != nil {
		st.n.T.Fatal(err)
	}
	return path
}

// run asks for the pod. One that is listed as ready is the pod that the caller
// gets: its id may have been told already.
func (st *story) run() error {
	ready, err := st.n.Runtime.ListPodSandbox(st.n.Ctx(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	r, err := st.n.Runtime.RunPodSandbox(st.n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: st.pod.Config, RuntimeHandler: st.handler})
	if err != nil {
		return err
	}
	for _, p := range ready.Items {
		if p.Metadata.Uid == st.pod.Config.Metadata.Uid && p.Id != r.PodSandboxId {
			return fmt.Errorf("pod %s was listed, and the same request made pod %s", p.Id, r.PodSandboxId)
		}
	}
	st.pod.ID = r.PodSandboxId
	st.n.Know(r.PodSandboxId)
	return nil
}

// create asks for a container, with the same care.
func (st *story) create(c *node.Container) error {
	listed, err := st.n.Runtime.ListContainers(st.n.Ctx(), &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{PodSandboxId: st.pod.ID},
	})
	if err != nil {
		return err
	}
	id, err := st.pod.TryCreate(c.Config)
	if err != nil {
		return err
	}
	for _, l := range listed.Containers {
		if l.Metadata.Name == c.Config.Metadata.Name && l.Id != id {
			return fmt.Errorf("container %s was listed, and the same request made container %s", l.Id, id)
		}
	}
	c.ID = id
	return nil
}

func (st *story) update(c *node.Container, shares int64) error {
	_, err := st.n.Runtime.UpdateContainerResources(st.n.Ctx(), &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: c.ID, Linux: &runtimeapi.LinuxContainerResources{CpuShares: shares},
	})
	if err != nil {
		return err
	}
	r, err := st.n.Runtime.ContainerStatus(st.n.Ctx(), &runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
	if err == nil && r.Status.GetResources().GetLinux().GetCpuShares() != shares {
		err = fmt.Errorf("after the update to %d shares the status says %v", shares, r.Status.Resources)
	}
	return err
}

// tryFirst starts the first container and sees its only process.
func (st *story) tryFirst() error {
	if err := st.first.TryStart(); err != nil {
		return err
	}
	r, err := st.n.Runtime.ContainerStatus(st.n.Ctx(), &runtimeapi.ContainerStatusRequest{ContainerId: st.first.ID})
	if err == nil && r.Status.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		err = fmt.Errorf("after its start the container is %s", r.Status)
	}
	return err
}

func (st *story) exec() error {
	r, err := st.n.Runtime.ExecSync(st.n.Ctx(), &runtimeapi.ExecSyncRequest{ContainerId: st.first.ID, Cmd: []string{"echo", "here"}})
	if err == nil && (string(r.Stdout) != "here\n" || r.ExitCode != 0) {
		err = fmt.Errorf("exec answered %s", r)
	}
	return err
}

// attach joins the container's streams, and hangs up when it has seen something.
func (st *story) attach() error { return st.attachTo(st.first, "") }

// attachTo is attach to any container that says something.
func (st *story) attachTo(c *node.Container, input string) error {
	r, err := st.n.Runtime.Attach(st.n.Ctx(), &runtimeapi.AttachRequest{ContainerId: c.ID, Stdin: true, Stdout: true, Tty: c.Config.Tty, Stderr: !c.Config.Tty})
	if err != nil {
		return err
	}
	e, err := node.SPDYExecutor(r.Url)
	if err != nil {
		return err
	}
	ctx, hangUp := context.WithTimeout(st.n.Ctx(), 10*time.Second)
	defer hangUp()
	out := &eye{saw: hangUp}
	stdin, write := io.Pipe()
	defer write.Close()
	if input != "" {
		go func() { _, _ = io.WriteString(write, input) }()
	}
	streams := remotecommand.StreamOptions{Stdin: stdin, Stdout: out, Tty: c.Config.Tty}
	if !streams.Tty {
		streams.Stderr = io.Discard
	}
	err = e.StreamWithContext(ctx, streams)
	if errors.Is(err, context.Canceled) && out.seen.Load() {
		return nil
	}
	return fmt.Errorf("the attachment ended: %w", err)
}

// eye calls saw when something is written to it.
type eye struct {
	saw  func()
	seen atomic.Bool
}

func (e *eye) Write(p []byte) (int, error) {
	e.seen.Store(true)
	e.saw()
	return len(p), nil
}

// startRefused wants the definite answer, from the request or, if that answer
// was lost, from the container's status.
func (st *story) startRefused() error {
	const why = "/no/such/program"
	err := st.refused.TryStart()
	switch {
	case err == nil:
		return errors.New("a program that is not there was started")
	case strings.Contains(err.Error(), "failpoint"):
		return err
	case strings.Contains(err.Error(), why):
		return nil
	}
	r, unknown := st.n.Runtime.ContainerStatus(st.n.Ctx(), &runtimeapi.ContainerStatusRequest{ContainerId: st.refused.ID})
	if unknown != nil || r.Status.State != runtimeapi.ContainerState_CONTAINER_EXITED || !strings.Contains(r.Status.Message, why) {
		return errors.Join(err, unknown, fmt.Errorf("its status is %s", r.GetStatus()))
	}
	return nil
}

func (st *story) stopFirst() error {
	_, err := st.n.Runtime.StopContainer(st.n.Ctx(), &runtimeapi.StopContainerRequest{ContainerId: st.first.ID, Timeout: 10})
	if err != nil {
		return err
	}
	r, err := st.n.Runtime.ContainerStatus(st.n.Ctx(), &runtimeapi.ContainerStatusRequest{ContainerId: st.first.ID})
	if err == nil && (r.Status.State != runtimeapi.ContainerState_CONTAINER_EXITED || r.Status.ExitCode != 0) {
		err = fmt.Errorf("after it was stopped the container is %s", r.Status)
	}
	return err
}

func (st *story) removeFirst() error {
	_, err := st.n.Runtime.RemoveContainer(st.n.Ctx(), &runtimeapi.RemoveContainerRequest{ContainerId: st.first.ID})
	return err
}

func (st *story) stopPod() error {
	_, err := st.n.Runtime.StopPodSandbox(st.n.Ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: st.pod.ID})
	return err
}

func (st *story) removePod() error {
	_, err := st.n.Runtime.RemovePodSandbox(st.n.Ctx(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: st.pod.ID})
	return err
}

func (st *story) removeImage(name string) error {
	_, err := st.n.Images.RemoveImage(st.n.Ctx(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: name}})
	return err
}

// end ends the daemon as its administrator does.
func (st *story) end() error {
	st.n.Kill(syscall.SIGTERM)
	return nil
}

// settled waits until nothing is left of pods, and is what is left at the end.
func settled(what func() []string) (left []string) {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if left = what(); len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}
