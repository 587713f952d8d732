package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	rpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/test/node"
)

// inFlight is what `fairlead ops` lists.
func inFlight(n *node.Node) []adminv1.Operation {
	n.T.Helper()
	out, err := n.CLI("ops", "-o", "json")
	if err != nil {
		n.T.Fatal(err)
	}
	var list []adminv1.Operation
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		n.T.Fatalf("%v: %s", err, out)
	}
	return list
}

// awaitStuck waits until the operation is at that stage, and returns it.
func awaitStuck(n *node.Node, verb, name, stage string) (found adminv1.Operation) {
	n.T.Helper()
	node.Eventually(n.T, verb+" "+name+" at "+stage, func() bool {
		list := inFlight(n)
		i := slices.IndexFunc(list, func(op adminv1.Operation) bool {
			return op.Verb == verb && op.Name == name && strings.Contains(op.Stage, stage)
		})
		if i >= 0 {
			found = list[i]
		}
		return i >= 0
	})
	if found.Began.IsZero() || !found.Entered.IsZero() && found.Entered.Before(found.Began) {
		n.T.Errorf("the times of %+v", found)
	}
	return found
}

// withDeadline is a caller's context that ends soon.
func withDeadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// wantNamed checks that the error of a call whose deadline came names the
// operation, its stage and its age.
func wantNamed(t *testing.T, err error, parts ...string) {
	t.Helper()
	if status.Code(err) != rpccodes.DeadlineExceeded {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
	for _, p := range append(parts, "still at stage") {
		if !strings.Contains(status.Convert(err).Message(), p) {
			t.Errorf("the error does not say %q: %v", p, err)
		}
	}
	if !aged.MatchString(status.Convert(err).Message()) {
		t.Errorf("the error does not say how old the operation is: %v", err)
	}
}

var aged = regexp.MustCompile(`after [0-9.]+(m|µ)?s`)

// hung sends a request about a container that hangs, and another one that joins it and gives up,
// whose error has to name what hangs and where. The first goes on.
func hung(n *node.Node, call func(context.Context) error, verb, name, stage string) <-chan error {
	n.T.Helper()
	first := sendOff(call)
	awaitStuck(n, verb, name, stage)
	wantNamed(n.T, call(withDeadline(n.T)), verb+" container "+name, stage)
	if op := awaitStuck(n, verb, name, stage); op.Kind != "container" || op.Waiting != 1 {
		n.T.Errorf("with one who waits: %+v", op)
	}
	return first
}

// othersWork lives a pod's whole life beside one that is stuck, and lists and
// looks at everything meanwhile.
func othersWork(n *node.Node, handler string) {
	n.T.Helper()
	s := n.RunPod(handler)
	c := s.Start(node.Script("echo hello; sleep 1000"))
	if got := strings.TrimSpace(c.Exec("echo", "there")); got != "there" {
		n.T.Errorf("exec says %q", got)
	}
	pods, err := n.Runtime.ListPodSandbox(n.Ctx(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil || !slices.ContainsFunc(pods.Items, func(p *runtimeapi.PodSandbox) bool { return p.Id == s.ID }) {
		n.T.Errorf("list pods: %v, %v", pods, err)
	}
	for _, p := range pods.GetItems() {
		if _, err := n.Runtime.PodSandboxStatus(n.Ctx(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.Id, Verbose: true}); err != nil {
			n.T.Errorf("status of pod %s: %v", p.Metadata.Name, err)
		}
	}
	containers, err := n.Runtime.ListContainers(n.Ctx(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		n.T.Errorf("list containers: %v", err)
	}
	for _, c := range containers.GetContainers() {
		if _, err := n.Runtime.ContainerStatus(n.Ctx(), &runtimeapi.ContainerStatusRequest{ContainerId: c.Id, Verbose: true}); err != nil {
			n.T.Errorf("status of container %s: %v", c.Metadata.Name, err)
		}
	}
	for _, call := range []func() error{
		func() error {
			_, err := n.Runtime.Status(n.Ctx(), &runtimeapi.StatusRequest{Verbose: true})
			return err
		},
		func() error { _, err := n.Images.ListImages(n.Ctx(), &runtimeapi.ListImagesRequest{}); return err },
		func() error { _, err := n.Images.ImageFsInfo(n.Ctx(), &runtimeapi.ImageFsInfoRequest{}); return err },
	} {
		if err := call(); err != nil {
			n.T.Error(err)
		}
	}
	n.Pull(node.Busybox)
	c.Stop(0)
	c.Remove()
	s.Remove()
}

// onHostPath is a container that mounts a path of the host.
func onHostPath(path string) *runtimeapi.ContainerConfig {
	c := node.Script("sleep 1000")
	c.Mounts = []*runtimeapi.Mount{{HostPath: path, ContainerPath: "/mnt"}}
	return c
}

// objectName is how operations name a container.
func objectName(s *node.Sandbox, c *runtimeapi.ContainerConfig) string {
	return s.Config.Metadata.Namespace + "/" + s.Config.Metadata.Name + "/" + c.Metadata.Name
}

// sendOff sends a request that is expected to hang, and does not wait for it.
func sendOff(call func(context.Context) error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- call(context.Background()) }()
	return done
}

func createIn(s *node.Sandbox, c *runtimeapi.ContainerConfig) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.Node.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: s.ID, Config: c, SandboxConfig: s.Config})
		return err
	}
}

// deadModes are the ways of a dead file system.
var deadModes = map[string]int32{"silent": silent, "deaf": deaf}

// A container whose host path hangs costs its own pod alone: its caller learns
// where, the next one joins, and the pod can be stopped and removed while the
// file system still hangs.
func TestCreateOnADeadMount(t *testing.T) {
	t.Parallel()
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	for name, how := range deadModes {
		t.Run(name, func(t *testing.T) {
			outer := n.T
			n.T = t
			defer func() { n.T = outer }()
			dead := mountDead(t, filepath.Join(t.TempDir(), "dead"))
			dead.hang(how)
			s := n.RunPod("crun")
			c := onHostPath(dead.dir)
			again := hung(n, createIn(s, c), "create", objectName(s, c), "look at "+dead.dir)
			othersWork(n, "crun")
			s.Remove() // while it hangs
			if err := <-again; status.Code(err) != rpccodes.FailedPrecondition || !strings.Contains(err.Error(), "its pod is being stopped") {
				t.Errorf("create in a pod that was stopped: %v", err)
			}
			if ops := inFlight(n); len(ops) > 0 {
				t.Errorf("still in flight: %+v", ops)
			}
		})
	}
}

// When the file system is freed, what hung at it ends with an error of its own,
// and the same request succeeds once the path is good.
func TestCreateOnAMountThatIsFreed(t *testing.T) {
	t.Parallel()
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	dead := mountDead(t, filepath.Join(t.TempDir(), "dead"))
	dead.hang(deaf)
	s := n.RunPod("crun")
	c := onHostPath(dead.dir)
	first := sendOff(createIn(s, c))
	awaitStuck(n, "create", objectName(s, c), "look at "+dead.dir)
	dead.free()
	if err := <-first; err == nil || !strings.Contains(err.Error(), "mounts[0].host_path") {
		t.Errorf("create on a mount that was freed: %v", err)
	}
	s.Start(c).Exec("true")
}

// startAgain starts daemons until one stays, as an init system does. The first
// may come before the old one has let go; its process may stay for as long as
// the mount hangs.
func startAgain(n *node.Node) {
	n.T.Helper()
	node.Eventually(n.T, "another daemon", func() bool { return n.TryStart() == nil })
}

// The daemon ends on SIGTERM while a pod is stuck, and the next one serves.
func TestRestartWhileStuck(t *testing.T) {
	t.Parallel()
	for name, how := range deadModes {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			t.Run(name+" "+sig.String(), func(t *testing.T) {
				n := node.Start(t, "")
				n.Pull(node.Busybox)
				dead := mountDead(t, filepath.Join(t.TempDir(), "dead"))
				t.Cleanup(dead.free)
				dead.hang(how)
				s := n.RunPod("crun")
				running := s.Start(node.Script("sleep 1000"))
				c := onHostPath(dead.dir)
				stuck := sendOff(createIn(s, c))
				awaitStuck(n, "create", objectName(s, c), "look at "+dead.dir)
				if err := syscall.Kill(n.Pid(), sig); err != nil {
					t.Fatal(err)
				}
				if err := <-stuck; err == nil {
					t.Error("the container was made")
				}
				startAgain(n)
				running.Exec("true")
				othersWork(n, "crun")
				s.Remove()
				dead.free()
			})
		}
	}
}

// A runtime that hangs on a host path when the container starts: the mount was
// good when the container was created.
func TestStartOnADeadMount(t *testing.T) {
	t.Parallel()
	node.UnderEach(t, func(t *testing.T, n *node.Node, handler string) {
		dead := mountDead(t, filepath.Join(t.TempDir(), "dead"))
		s := n.RunPod(handler)
		cfg := onHostPath(filepath.Join(dead.dir, "below"))
		c := s.Create(cfg)
		dead.hang(deaf)
		start := func(ctx context.Context) error {
			_, err := n.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.ID})
			return err
		}
		again := hung(n, start, "start", objectName(s, cfg), "run")
		othersWork(n, handler)
		dead.free()
		if err := <-again; err == nil {
			t.Error("a container started whose host path failed")
		}
		if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_EXITED {
			t.Errorf("the container is %s: %s", st.State, st.Message)
		}
		s.Remove()
	})
}

// A removal that hangs is listed, joined and left; when the file system is
// freed it ends, and asked once more nothing is left.
func TestRemoveOnADeadMount(t *testing.T) {
	t.Parallel()
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	s := n.RunPod("crun")
	c := s.Start(node.Script("sleep 1000"))
	dead := mountDead(t, filepath.Join(n.Root, "containers", c.ID, "hangs"))
	dead.hang(deaf)
	remove := func(ctx context.Context) error {
		_, err := n.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.ID})
		return err
	}
	again := hung(n, remove, "remove", objectName(s, c.Config), "delete writable layer")
	stop := sendOff(func(ctx context.Context) error {
		_, err := n.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.ID})
		return err
	})
	if err := <-stop; err != nil {
		t.Errorf("stop a pod while its container's removal hangs: %v", err)
	}
	othersWork(n, "crun")

	// The daemon ends without it, and the next one can be asked again.
	if err := syscall.Kill(n.Pid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-again; err == nil {
		t.Error("the container was removed")
	}
	startAgain(n)
	othersWork(n, "crun")
	again = hung(n, remove, "remove", objectName(s, c.Config), "delete writable layer")
	dead.free()
	if err := <-again; err != nil {
		t.Logf("the removal that was freed: %v", err) // it may have met the error that freed it
	}
	c.Remove()
	s.Remove()
}

// A pod whose folder hangs when a daemon starts delays no other; it is Unknown
// when its time is up, and as before after the next start.
func TestRecoveryOnADeadMount(t *testing.T) {
	t.Parallel()
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	stuck, fine := n.RunPod("crun"), n.RunPod("crun")
	inside := stuck.Start(node.Script("sleep 1000"))
	running := fine.Start(node.Script("sleep 1000"))
	n.Kill(syscall.SIGKILL)
	dead := mountDead(t, filepath.Join(n.State, "pods", stuck.ID))
	dead.hang(deaf)
	n.Start()
	awaitStuck(n, "recover", stuck.Config.Metadata.Namespace+"/"+stuck.Config.Metadata.Name, "look at ")
	cfg := node.Script("true")
	asked := hung(n, createIn(stuck, cfg), "create", objectName(stuck, cfg), "wait for the pod")
	running.Exec("true")
	othersWork(n, "crun")
	if err := <-asked; status.Code(err) != rpccodes.FailedPrecondition {
		t.Errorf("create in a pod that could not be looked at: %v", err)
	}
	node.Eventually(t, "the pod is given up", func() bool { // as somebody sees who asks
		r, err := n.Runtime.PodSandboxStatus(n.Ctx(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: stuck.ID, Verbose: true})
		return err == nil && r.Status.State == runtimeapi.PodSandboxState_SANDBOX_NOTREADY && strings.Contains(r.Info["info"], "no answer for")
	})
	if err := syscall.Kill(n.Pid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	dead.free()
	startAgain(n)
	node.Eventually(t, "the pod is found again", func() bool {
		r, err := n.Runtime.PodSandboxStatus(n.Ctx(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: stuck.ID})
		return err == nil && r.Status.State == runtimeapi.PodSandboxState_SANDBOX_READY
	})
	inside.Exec("true")
}

// A folder of network plugins that hangs makes the node not ready, and says so;
// it does not hold up who asks.
func TestPluginsOnADeadMount(t *testing.T) {
	t.Parallel()
	slow, toml := newSlowNetwork(t)
	slow.letGo(t)
	dead := mountDead(t, filepath.Join(t.TempDir(), "dead"))
	toml = strings.Replace(toml, "bin_dirs = [", fmt.Sprintf("bin_dirs = [%q, ", filepath.Join(dead.dir, "bin")), 1)
	n := node.Start(t, toml)
	dead.hang(deaf)
	for range 3 {
		r, err := n.Runtime.Status(n.Ctx(), &runtimeapi.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Status.Conditions {
			if c.Type == runtimeapi.NetworkReady && (c.Status || !strings.Contains(c.Message, "no answer for")) {
				t.Errorf("the network is %t: %s", c.Status, c.Message)
			}
		}
	}
	dead.free()
	node.Eventually(t, "the network is back", func() bool {
		r, err := n.Runtime.Status(n.Ctx(), &runtimeapi.StatusRequest{})
		return err == nil && r.Status.Conditions[1].Status
	})
}
