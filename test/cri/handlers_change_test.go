package cri

import (
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// Handlers come, change and go while 50 pods run or start: no request fails, and
// no container is started twice or ends.
func TestHandlersChangeUnderFiftyPods(t *testing.T) {
	path, err := exec.LookPath(node.Handlers[0])
	if err != nil {
		t.Skipf("needs %s: %v", node.Handlers[0], err)
	}
	const pods, clients = 50, 4
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	began := map[string]int64{}
	var mu sync.Mutex
	start := func(i int) error {
		c, err := startPod(n, i)
		if err != nil {
			return fmt.Errorf("pod %d: %w", i, err)
		}
		mu.Lock()
		defer mu.Unlock()
		began[c.ID] = c.Status().StartedAt
		return nil
	}
	for i := range pods / 2 {
		if err := start(i); err != nil {
			t.Fatal(err)
		}
	}
	started := make(chan error)
	next := make(chan int)
	for range clients {
		go func() {
			var failed []error
			for i := range next {
				failed = append(failed, start(i))
			}
			started <- errors.Join(failed...)
		}()
	}
	changes := 0
	change := func(args ...string) {
		t.Helper()
		if _, err := n.CLI(append([]string{"handlers"}, args...)...); err != nil {
			t.Error(err)
		}
		changes++
	}
	for i := pods / 2; i < pods; {
		for range clients {
			if i < pods {
				next <- i
				i++
			}
		}
		change("add", "extra", "path="+path)
		change("set", "extra", "privileged_without_host_devices=true")
		change("rm", "extra")
	}
	close(next)
	for range clients {
		if err := <-started; err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d changes while %d pods started", changes, pods-pods/2)
	list, err := n.Runtime.ListContainers(n.Ctx(), &runtimeapi.ListContainersRequest{})
	if err != nil || len(list.Containers) != pods {
		t.Fatalf("%d containers, want %d: %v", len(list.Containers), pods, err)
	}
	for _, c := range list.Containers {
		st, err := n.Runtime.ContainerStatus(n.Ctx(), &runtimeapi.ContainerStatusRequest{ContainerId: c.Id})
		if err != nil || st.Status.State != runtimeapi.ContainerState_CONTAINER_RUNNING || st.Status.StartedAt != began[c.Id] || c.Metadata.Attempt != 0 {
			t.Errorf("%s %v", st.GetStatus(), err)
		}
	}
}

// startPod is RunPod and Start for many at once.
func startPod(n *node.Node, i int) (*node.Container, error) {
	s := &node.Sandbox{Node: n, Config: n.PodConfig()}
	s.Config.Metadata.Name = fmt.Sprintf("%s-%d", s.Config.Metadata.Name, i)
	r, err := n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: s.Config, RuntimeHandler: node.Handlers[i%len(node.Handlers)]})
	if err != nil {
		return nil, err
	}
	s.ID = r.PodSandboxId
	n.Know(s.ID)
	c := &node.Container{Sandbox: s, Config: node.Script("sleep 1000")}
	if c.ID, err = s.TryCreate(c.Config); err != nil {
		return nil, err
	}
	return c, c.TryStart()
}
