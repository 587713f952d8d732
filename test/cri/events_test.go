package cri

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// follow returns a stream that misses nothing from now on.
func follow(t *testing.T, n *node.Node) runtimeapi.RuntimeService_GetContainerEventsClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), node.Patience)
	t.Cleanup(cancel)
	events, err := n.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.Header(); err != nil {
		t.Fatal(err)
	}
	return events
}

// eventKind is the short name of an event, such as STARTED.
func eventKind(e *runtimeapi.ContainerEventResponse) string {
	return strings.TrimSuffix(strings.TrimPrefix(e.ContainerEventType.String(), "CONTAINER_"), "_EVENT")
}

func TestEvents(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		events := follow(t, n)
		s := n.RunPod(h)
		// Not before its start was told.
		c := s.Start(node.Script("while [ ! -e /go ]; do usleep 10000; done; exit 3"))
		c.Exec("touch", "/go")
		c.Wait()
		c.Remove()
		s.Remove()
		names := map[string]string{s.ID: "pod", c.ID: "container"}
		var got []string
		for len(got) < 8 {
			e, err := events.Recv()
			if err != nil {
				t.Fatal(err, got)
			}
			if e.PodSandboxStatus.GetId() != s.ID || e.PodSandboxStatus.GetMetadata().GetUid() != s.Config.Metadata.Uid || e.CreatedAt == 0 {
				t.Errorf("%v", e)
			}
			line := names[e.ContainerId] + " " + eventKind(e)
			for _, st := range e.ContainersStatuses {
				line += fmt.Sprint(" ", strings.TrimPrefix(st.State.String(), "CONTAINER_"), " ", st.ExitCode)
			}
			got = append(got, line)
		}
		want := []string{
			"pod CREATED", "pod STARTED",
			"container CREATED CREATED 0", "container STARTED RUNNING 0", "container STOPPED EXITED 3", "container DELETED",
			"pod STOPPED", "pod DELETED",
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got:\n%s", strings.Join(got, "\n"))
		}
	})
}

// Many at once, and a reader that begins late: each arrives, in order.
func TestNoEventIsLost(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	events := follow(t, n)
	const pods, each = 4, 40
	var wg sync.WaitGroup
	for range pods {
		s := n.RunPod("crun")
		wg.Go(func() {
			for range each {
				id, err := s.TryCreate(node.Script("true"))
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := n.Runtime.RemoveContainer(n.Ctx(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	of := map[string]string{}
	for range pods*2 + pods*each*3 {
		e, err := events.Recv()
		if err != nil {
			t.Fatal(err)
		}
		of[e.ContainerId] += eventKind(e) + " "
	}
	count := map[string]int{}
	for _, kinds := range of {
		count[kinds]++
	}
	if len(count) != 2 || count["CREATED STARTED "] != pods || count["CREATED STOPPED DELETED "] != pods*each {
		t.Errorf("%v", count)
	}
}
