package cri

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/failpoint"
	_ "fairlead.run/internal/lifecycle" // registers the places
)

// story is the whole life of a pod with one container, as a list of requests.
type story struct {
	n     *node
	s     *sandbox
	c     *container
	steps []func() error
}

func newStory(n *node, handler string) *story {
	st := &story{n: n, s: &sandbox{n: n, config: n.podConfig(sharedPID)}}
	cfg := script("trap '' TERM; echo up; while :; do sleep 0.1; done")
	cfg.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
	st.c = &container{s: st.s, config: cfg}
	rt := func() runtimeapi.RuntimeServiceClient { return n.runtime }
	st.steps = []func() error{
		func() error {
			r, err := rt().RunPodSandbox(n.ctx(), &runtimeapi.RunPodSandboxRequest{Config: st.s.config, RuntimeHandler: handler})
			st.s.id = r.GetPodSandboxId()
			return err
		},
		func() (err error) { st.c.id, err = st.s.tryCreate(cfg); return err },
		func() error { return st.c.tryStart() },
		func() error {
			_, err := rt().ExecSync(n.ctx(), &runtimeapi.ExecSyncRequest{ContainerId: st.c.id, Cmd: []string{"true"}})
			return err
		},
		func() error {
			_, err := rt().StopContainer(n.ctx(), &runtimeapi.StopContainerRequest{ContainerId: st.c.id, Timeout: 1})
			return err
		},
		func() error {
			_, err := rt().RemoveContainer(n.ctx(), &runtimeapi.RemoveContainerRequest{ContainerId: st.c.id})
			return err
		},
		func() error {
			_, err := rt().StopPodSandbox(n.ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: st.s.id})
			return err
		},
		func() error {
			_, err := rt().RemovePodSandbox(n.ctx(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: st.s.id})
			return err
		},
	}
	return st
}

func sharedPID(p *runtimeapi.PodSandboxConfig) {
	p.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
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

// ofPods is what is left of pods while the daemon still runs.
func (n *node) ofPods() (out []string) {
	for _, what := range n.left() {
		if kind, _, _ := strings.Cut(what, " "); kind == "state" || kind == "root" || kind == "cgroup" || kind == "mount" {
			out = append(out, what)
		}
	}
	return out
}

// restart ends the daemon if it still runs and starts it with this environment.
func (n *node) restart(env ...string) {
	n.t.Helper()
	select {
	case <-n.done:
	default:
		n.kill(syscall.SIGTERM)
	}
	n.env = env
	n.start()
}

// The daemon dies at every place that there is, in the middle of what it does.
// The next one has to accept the request that was cut off, as the kubelet
// repeats it, and to leave nothing of the first attempt.
func TestDaemonDiesAtEveryFailpoint(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		for _, name := range failpoint.Names() {
			if strings.HasPrefix(name, "monitor.") {
				continue // those are the monitor's
			}
			n.restart(fmt.Sprintf("%s=%s=kill", failpoint.Env, name))
			st := newStory(n, h)
			at, err := st.tell(0)
			if err == nil {
				t.Errorf("%s: nothing came by", name)
				continue
			}
			select {
			case <-n.done:
			case <-time.After(patience):
				t.Fatalf("%s: the daemon lives, step %d: %v", name, at, err)
			}
			n.restart()
			if at, err := st.tell(at); err != nil {
				t.Errorf("%s: step %d, after the crash: %v", name, at, err)
			}
			n.removeAll()
			var left []string
			for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				if left = n.ofPods(); len(left) == 0 {
					break
				}
			}
			if len(left) > 0 {
				t.Errorf("%s: left:\n%s", name, strings.Join(left, "\n"))
			}
		}
	})
}
