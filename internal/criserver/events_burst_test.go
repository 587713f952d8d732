package criserver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/lifecycle/events"
	"fairlead.run/internal/pod"
)

// One burst is less than what a follower may be behind, so that it depends on no
// machine's speed whether a reader can be late for it.
const (
	burstPods       = 8
	burstContainers = 60 // of each
	burstEvents     = 4  // of each of these
	burst           = burstPods * burstContainers * burstEvents
)

// lives has the containers of a pod come and go, as quickly as that can be told.
func lives(to *events.Feed, id pod.ID) {
	with := func(c *pod.Container) *pod.Record {
		r := &pod.Record{ID: id, State: pod.Running}
		if c != nil {
			r.Containers = []*pod.Container{c}
		}
		return r
	}
	for n := range burstContainers {
		was := with(nil)
		for _, s := range []pod.State{pod.Created, pod.Running, pod.Exited} {
			now := with(&pod.Container{ID: pod.ContainerID(fmt.Sprint(id, ".", n)), State: s})
			to.Changed(was, now)
			was = now
		}
		to.Changed(was, with(nil))
	}
}

// heard is what a reader got of one burst, by pod and in order.
type heard map[string][]string

func listen(from cri.RuntimeService_GetContainerEventsClient) (heard, error) {
	got := heard{}
	for range burst {
		e, err := from.Recv()
		if err != nil {
			return got, err
		}
		of := e.GetPodSandboxStatus().GetId()
		got[of] = append(got[of], e.ContainerId+" "+e.ContainerEventType.String())
	}
	return got, nil
}

// compare fails unless each event of each pod is there once, in the order of what
// happened.
func compare(t *testing.T, who string, got heard, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", who, err)
	}
	for p := range burstPods {
		id := fmt.Sprint("p", p)
		var want []string
		for c := range burstContainers {
			for _, kind := range []string{"CREATED", "STARTED", "STOPPED", "DELETED"} {
				want = append(want, fmt.Sprint(id, ".", c, " CONTAINER_", kind, "_EVENT"))
			}
		}
		if !slices.Equal(got[id], want) {
			t.Errorf("%s was told of %s: %q", who, id, got[id])
		}
	}
}

// Many changes at the same moment, hundreds of times as many as 200 a second, are
// all told, each once and in order: to who reads meanwhile, and to who begins to
// read only when the last has happened, for whom no rate could be higher.
func TestBurstsOfEvents(t *testing.T) {
	feed := &events.Feed{}
	conn := serve(t, newFake().server(t, func(c *Config) { c.Events = feed }))
	subscribe := func() cri.RuntimeService_GetContainerEventsClient {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		s, err := cri.NewRuntimeServiceClient(conn).GetContainerEvents(ctx, &cri.GetEventsRequest{})
		if err == nil {
			_, err = s.Header()
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	quick, late := subscribe(), subscribe()
	for range 5 {
		began := time.Now()
		var writers, reader sync.WaitGroup
		reader.Go(func() {
			got, err := listen(quick)
			compare(t, "who reads meanwhile", got, err)
		})
		for p := range burstPods {
			writers.Go(func() { lives(feed, pod.ID(fmt.Sprint("p", p))) })
		}
		writers.Wait()
		told := time.Since(began)
		reader.Wait()
		took := time.Since(began)
		got, err := listen(late)
		compare(t, "who reads afterwards", got, err)
		if t.Failed() {
			return
		}
		t.Logf("%d events happened in %s and were read in %s: %.0f a second", burst, told, took, burst/took.Seconds())
	}
}
