package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/failpoint"
	"fairlead.run/test/node"
)

// halfMade tells the beginning of a story up to a moment at which the daemon is
// killed while it makes a pod, and a container in another one. What it returns
// is the rest: the requests that were cut off, and those that end the story.
func halfMade(t *testing.T, n *node.Node, g ground) []request {
	t.Helper()
	st, other := newStory(t, n, g), newStory(t, n, g)
	other.pod.Config.PortMappings = nil
	asleep := filepath.Join(n.Dir, "asleep")
	_ = os.Remove(asleep)
	n.Env = []string{fmt.Sprintf("%s=create.bundled=sleep:1m@3!%s,run.paused=kill@2", failpoint.Env, asleep)}
	n.Start()
	for _, do := range []func() error{
		func() error { _, err := n.TryPull(st.tag); return err },
		st.run,
		func() error { return st.create(st.first) },
		func() error { return st.create(st.second) },
		st.tryFirst,
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		_, _ = st.pod.TryCreate(st.refused.Config)
	}()
	node.Eventually(t, "the container is half made", func() bool { _, err := os.Stat(asleep); return err == nil })
	if err := other.run(); err == nil {
		t.Fatal("the pod was made, and the daemon was to die")
	}
	select {
	case <-n.Ended():
	case <-time.After(node.Patience):
		t.Fatal("the daemon lives")
	}
	<-cut
	return []request{
		{name: startDaemon, do: n.TryStart},
		{name: "see the first container", do: st.seeFirst},
		{name: "run the pod that was cut off", makes: true, do: other.run},
		{name: "create the container that was cut off", makes: true, do: func() error { return st.create(st.refused) }},
		{name: "exec", do: st.exec},
		{name: "start the second container", do: st.second.TryStart},
		{name: "start what cannot start", do: st.startRefused},
		{name: "stop the first container", do: st.stopFirst},
		{name: "stop the pod", do: st.stopPod},
		{name: "remove the pod", do: st.removePod},
		{name: "remove the other pod", do: other.removePod},
		{name: endDaemon, do: st.end},
	}
}

// seeFirst waits until the first container is known to run.
func (st *story) seeFirst() error {
	for end := time.Now().Add(node.Patience); ; time.Sleep(10 * time.Millisecond) {
		r, err := st.n.Runtime.ContainerStatus(st.n.Ctx(), &runtimeapi.ContainerStatusRequest{ContainerId: st.first.ID})
		if err != nil || r.Status.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("the container that ran is %s", r.Status)
		}
	}
}
