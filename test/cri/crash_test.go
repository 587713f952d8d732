package cri

import (
	"fmt"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/failpoint"
	_ "fairlead.run/internal/lifecycle" // registers the places
	"fairlead.run/test/node"
)

// story is the whole life of a pod with one container, as a list of requests.
type story struct {
	n     *node.Node
	s     *node.Sandbox
	c     *node.Container
	steps []func() error
}

func newStory(n *node.Node, handler string) *story {
	st := &story{n: n, s: &node.Sandbox{Node: n, Config: n.PodConfig(node.SharedPID)}}
	cfg := node.Script("trap '' TERM; echo up; while :; do sleep 0.1; done")
	cfg.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
	st.c = &node.Container{Sandbox: st.s, Config: cfg}
	rt := func() runtimeapi.RuntimeServiceClient { return n.Runtime }
	st.steps = []func() error{
		func() error {
			r, err := rt().RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: st.s.Config, RuntimeHandler: handler})
			st.s.ID = r.GetPodSandboxId()
			return err
		},
		func() (err error) { st.c.ID, err = st.s.TryCreate(cfg); return err },
		func() error { return st.c.TryStart() },
		func() error {
			_, err := rt().ExecSync(n.Ctx(), &runtimeapi.ExecSyncRequest{ContainerId: st.c.ID, Cmd: []string{"true"}})
			return err
		},
		func() error {
			_, err := rt().StopContainer(n.Ctx(), &runtimeapi.StopContainerRequest{ContainerId: st.c.ID, Timeout: 1})
			return err
		},
		func() error {
			_, err := rt().RemoveContainer(n.Ctx(), &runtimeapi.RemoveContainerRequest{ContainerId: st.c.ID})
			return err
		},
		func() error {
			_, err := rt().StopPodSandbox(n.Ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: st.s.ID})
			return err
		},
		func() error {
			_, err := rt().RemovePodSandbox(n.Ctx(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: st.s.ID})
			return err
		},
	}
	return st
}

// tell goes on from a step and returns the first that failed.
func (st *story) tell(from int) (int, error) {
	for i := from; i < len(st.steps); i++ {
		if err := st.steps[i](); err != nil {
			return i, err
		}
	}
	return len(st.steps), nil
}

// The daemon dies at every place that there is, in the middle of what it does.
// The next one has to accept the request that was cut off, as the kubelet
// repeats it, and to leave nothing of the first attempt.
func TestDaemonDiesAtEveryFailpoint(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		for _, name := range failpoint.Names() {
			if strings.HasPrefix(name, "monitor.") {
				continue // those are the monitor's
			}
			n.Restart(fmt.Sprintf("%s=%s=kill", failpoint.Env, name))
			st := newStory(n, h)
			at, err := st.tell(0)
			if err == nil {
				t.Errorf("%s: nothing came by", name)
				continue
			}
			select {
			case <-n.Ended():
			case <-time.After(node.Patience):
				t.Fatalf("%s: the daemon lives, step %d: %v", name, at, err)
			}
			n.Restart()
			if at, err := st.tell(at); err != nil {
				t.Errorf("%s: step %d, after the crash: %v", name, at, err)
			}
			n.RemoveAll()
			var left []string
			for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				if left = n.OfPods(); len(left) == 0 {
					break
				}
			}
			if len(left) > 0 {
				t.Errorf("%s: left:\n%s", name, strings.Join(left, "\n"))
			}
		}
	})
}
