package cri

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// Callers stop containers with other graces than each other, while these end by
// themselves and while somebody removes them. All succeed, the shortest grace
// holds, and each container ends once.
func TestStopsRace(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		events := follow(t, n.Runtime)
		s := n.RunPod(h)
		scripts := []string{
			"trap 'exit 7' TERM; while :; do usleep 10000; done",
			"trap '' TERM; while :; do usleep 10000; done",
			"trap '' TERM; usleep 300000; exit 4",
			"exit 4",
		}
		const each = 3
		var all errgroup.Group
		var made []*node.Container
		for i := range each * len(scripts) {
			c := s.Start(node.Script(scripts[i%len(scripts)]))
			made = append(made, c)
			all.Go(func() error { return stopFromAllSides(c, i) })
		}
		if err := all.Wait(); err != nil {
			t.Fatal(err)
		}
		s.Remove()
		got := map[string]string{}
		for got[s.ID] != "CREATED STARTED STOPPED DELETED " {
			e, err := events.Recv()
			if err != nil {
				t.Fatal(err, got)
			}
			got[e.ContainerId] += eventKind(e) + " "
			checkEnd(t, e)
		}
		for i, c := range made {
			if got[c.ID] != "CREATED STARTED STOPPED DELETED " {
				t.Errorf("container %d: %s", i, got[c.ID])
			}
		}
	})
}

// checkEnd wants one of the exit codes that these containers can have.
func checkEnd(t *testing.T, e *runtimeapi.ContainerEventResponse) {
	t.Helper()
	for _, st := range e.ContainersStatuses {
		if st.Id == e.ContainerId && eventKind(e) == "STOPPED" && !slices.Contains([]int32{7, 137, 4}, st.ExitCode) {
			t.Errorf("a container ended with %d, %s: %s", st.ExitCode, st.Reason, st.Message)
		}
	}
}

// stopFromAllSides asks for a container's end by callers that want different
// things, and by one that removes it in the midst of that.
func stopFromAllSides(c *node.Container, i int) error {
	var callers errgroup.Group
	rt := c.Sandbox.Node.Runtime
	for k, grace := range []int64{1000, 1, 500, 2, 1000, 0} {
		callers.Go(func() error {
			// Not all in the same order.
			time.Sleep(time.Duration((k*7+i*3)%11) * 40 * time.Millisecond)
			ctx, cancel := context.WithTimeout(context.Background(), node.Patience)
			defer cancel()
			_, err := rt.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.ID, Timeout: grace})
			if err != nil {
				return fmt.Errorf("stop with a grace of %d s: %w", grace, err)
			}
			if k%2 == 0 {
				return nil
			}
			_, err = rt.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.ID})
			return err
		})
	}
	return callers.Wait()
}

// Callers repeat a stop that takes long, and programs take a second signal for
// the wish that they end at once.
func TestTheStopSignalComesOnce(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		c := s.Start(node.Script("trap 'echo asked' TERM; echo ready; while :; do usleep 10000; done"))
		node.Eventually(t, "the container is ready", func() bool { return strings.Contains(c.Log(), "ready") })
		var callers sync.WaitGroup
		stop := func(grace int64) {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), node.Patience)
				defer cancel()
				if _, err := n.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.ID, Timeout: grace}); err != nil {
					t.Error(err)
				}
			})
		}
		for range 3 {
			stop(1000)
		}
		node.Eventually(t, "the container is asked to end", func() bool { return strings.Contains(c.Log(), "asked") })
		stop(1000)
		stop(1)
		callers.Wait()
		if st := c.Wait(); st.ExitCode != 137 {
			t.Errorf("%+v", st)
		}
		must(t, c.Log(), "ready\nasked")
		s.Remove()
	})
}
