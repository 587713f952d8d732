package cri

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// follow returns a stream that misses nothing from now on.
func follow(t *testing.T, from runtimeapi.RuntimeServiceClient) runtimeapi.RuntimeService_GetContainerEventsClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*node.Patience)
	t.Cleanup(cancel)
	events, err := from.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
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
		events := follow(t, n.Runtime)
		s := n.RunPod(h)
		// Not before its start was told.
		c := s.Start(node.Script("while [ ! -e /go ]; do usleep 10000; done; exit 3"))
		// What lets it end may go with it.
		if _, err := n.Runtime.ExecSync(n.Ctx(), &runtimeapi.ExecSyncRequest{ContainerId: c.ID, Cmd: []string{"touch", "/go"}}); err != nil {
			t.Fatal(err)
		}
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

// told is an event, without the state that came with it.
type told struct{ id, kind string }

// reader collects what a subscriber is told.
type reader struct {
	stream runtimeapi.RuntimeService_GetContainerEventsClient
	got    []told
	err    error
	last   int64
}

// next takes one event and looks whether it agrees with itself and comes after
// the one before.
func (r *reader) next(t *testing.T) bool {
	t.Helper()
	var e *runtimeapi.ContainerEventResponse
	if e, r.err = r.stream.Recv(); r.err != nil {
		return false
	}
	r.got = append(r.got, told{e.ContainerId, eventKind(e)})
	if e.CreatedAt < r.last {
		t.Errorf("event %d is older than the one before: %v", len(r.got), e)
	}
	r.last = e.CreatedAt
	if e.ContainerId == e.PodSandboxStatus.GetId() {
		return true
	}
	state := "gone"
	for _, st := range e.ContainersStatuses {
		if st.Id == e.ContainerId {
			state = strings.TrimPrefix(st.State.String(), "CONTAINER_")
		}
	}
	fits := map[string]string{"CREATED": "CREATED", "STARTED": "RUNNING EXITED", "STOPPED": "EXITED", "DELETED": "gone EXITED"}
	if !strings.Contains(fits[eventKind(e)], state) {
		t.Errorf("event %d is %s of a container that is %s", len(r.got), eventKind(e), state)
	}
	return true
}

// Several clients make events as quickly as the machine can, and no subscriber
// misses one: neither who reads at once nor who begins late. One who never reads
// gets what it has not missed, and then an error.
func TestNoEventIsLost(t *testing.T) {
	n := node.Start(t, "", node.Plain)
	n.Pull(node.Busybox)
	quick, late, deaf := &reader{stream: follow(t, n.Runtime)}, &reader{stream: follow(t, n.Runtime)}, &reader{stream: follow(t, narrow(t, n))}
	const (
		pods  = 8
		each  = 200 // containers
		runs  = 10  // every tenth runs, which costs most of the time and makes one event more
		total = pods * (2 + each/runs*4 + (each-each/runs)*3)
	)
	var readers, clients sync.WaitGroup
	begin := make(chan struct{})
	readers.Go(func() {
		begun := sync.OnceFunc(func() { close(begin) })
		defer begun()
		for len(quick.got) < total && quick.next(t) {
			if len(quick.got) == total/3 {
				begun()
			}
		}
	})
	readers.Go(func() {
		<-begin
		for len(late.got) < total && late.next(t) {
		}
	})
	began := time.Now()
	for range pods {
		s := n.RunPod("crun")
		clients.Go(func() {
			for i := range each {
				if err := comeAndGo(s, i%runs == 0); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	clients.Wait()
	took := time.Since(began)
	if t.Failed() {
		return
	}
	readers.Wait()
	t.Logf("%d events in %s: %.0f a second", total, took.Round(time.Millisecond), total/took.Seconds())
	for name, r := range map[string]*reader{"quick": quick, "late": late} {
		if r.err != nil || !slices.Equal(r.got, quick.got) {
			t.Errorf("who is %s got %d events of %d, and %v", name, len(r.got), total, r.err)
		}
	}
	of := map[string]string{}
	for _, e := range quick.got {
		of[e.id] += e.kind + " "
	}
	count := map[string]int{}
	for _, kinds := range of {
		count[kinds]++
	}
	want := map[string]int{
		"CREATED STARTED ":                 pods,
		"CREATED STARTED STOPPED DELETED ": pods * each / runs,
		"CREATED STOPPED DELETED ":         pods * (each - each/runs),
	}
	if !maps.Equal(count, want) {
		t.Errorf("%v, want %v", count, want)
	}
	for deaf.next(t) {
	}
	if got := len(deaf.got); status.Code(deaf.err) != codes.ResourceExhausted || got < 2048 || got >= total || !slices.Equal(deaf.got, quick.got[:got]) {
		t.Errorf("who did not read got %d events of %d, and %v", got, total, deaf.err)
	}
}

// All containers of many pods end at the same moment, and then all pods are removed
// at the same moment. Who reads along and who begins to read when it is over are
// both told of each end and of each removal once, and of each container in order.
// There are fewer events than a reader may be behind.
func TestEventsOfABurst(t *testing.T) {
	const (
		pods  = 16
		each  = 14 // containers
		ends  = pods * each
		total = pods*4 + ends*4
	)
	n := node.Start(t, "", node.Plain)
	n.Pull(node.Busybox)
	dir := hostDir(t)
	gate := makeGate(t, filepath.Join(dir, "gate"))
	quick, late := &reader{stream: follow(t, n.Runtime)}, &reader{stream: follow(t, n.Runtime)}
	var readers sync.WaitGroup
	stopped := make(chan time.Duration, 1)
	readers.Go(func() { stopped <- quick.span(t, total, "STOPPED", ends) })
	var all []*node.Sandbox
	for range pods {
		all = append(all, n.RunPod("crun"))
	}
	atOnce := func(do func(*node.Sandbox) error) {
		var clients sync.WaitGroup
		for _, s := range all {
			clients.Go(func() {
				if err := do(s); err != nil {
					t.Error(err)
				}
			})
		}
		clients.Wait()
	}
	atOnce(func(s *node.Sandbox) error { return startMany(s, each, dir) })
	if t.Failed() {
		return
	}
	if _, err := gate.WriteString(strings.Repeat("\n", ends)); err != nil {
		t.Fatal(err)
	}
	awaitEnds(t, n, ends)
	atOnce(func(s *node.Sandbox) error {
		ctx, cancel := context.WithTimeout(context.Background(), node.Patience)
		defer cancel()
		if _, err := n.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.ID}); err != nil {
			return err
		}
		_, err := n.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.ID})
		return err
	})
	if t.Failed() {
		return
	}
	readers.Wait()
	took := <-stopped
	t.Logf("%d ends were told in %s: %.0f a second", ends, took.Round(time.Millisecond), ends/took.Seconds())
	for len(late.got) < total && late.next(t) {
	}
	if late.err != nil || !slices.Equal(late.got, quick.got) {
		t.Errorf("who read afterwards got %d events of %d, and %v", len(late.got), total, late.err)
	}
	of, count := map[string]string{}, map[string]int{}
	for _, e := range quick.got {
		of[e.id] += e.kind + " "
	}
	for _, kinds := range of {
		count[kinds]++
	}
	if want := map[string]int{"CREATED STARTED STOPPED DELETED ": pods + ends}; !maps.Equal(count, want) {
		t.Errorf("%v, want %v (%v)", count, want, quick.err)
	}
}

// makeGate makes a FIFO and keeps it open: who reads from it waits for a line, and
// each line lets one through.
func makeGate(t *testing.T, path string) *os.File {
	t.Helper()
	if err := unix.Mkfifo(path, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// startMany starts containers that wait at the gate.
func startMany(s *node.Sandbox, many int, dir string) error {
	for range many {
		cfg := node.Script("read x < /burst/gate")
		mounts(&runtimeapi.Mount{HostPath: dir, ContainerPath: "/burst"})(cfg)
		id, err := s.TryCreate(cfg)
		if err != nil {
			return err
		}
		if err := (&node.Container{Sandbox: s, ID: id, Config: cfg}).TryStart(); err != nil {
			return err
		}
	}
	return nil
}

// awaitEnds waits until so many containers have ended.
func awaitEnds(t *testing.T, n *node.Node, want int) {
	t.Helper()
	filter := &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED}}
	for end := time.Now().Add(node.Patience); ; time.Sleep(50 * time.Millisecond) {
		list, err := n.Runtime.ListContainers(n.Ctx(), &runtimeapi.ListContainersRequest{Filter: filter})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(list.GetContainers()); got == want {
			return
		} else if time.Now().After(end) {
			t.Fatalf("%d of %d containers have ended", got, want)
		}
	}
}

// span reads so many events, and says in what time those of a kind, so many,
// happened.
func (r *reader) span(t *testing.T, total int, kind string, many int) time.Duration {
	var first, last int64
	for seen := 0; len(r.got) < total && r.next(t); {
		if r.got[len(r.got)-1].kind != kind {
			continue
		}
		if seen++; seen == 1 {
			first = r.last
		}
		if seen == many {
			last = r.last
		}
	}
	return time.Duration(last - first)
}

// narrow is a client whose connection holds little that nobody has read.
func narrow(t *testing.T, n *node.Node) runtimeapi.RuntimeServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+n.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(1<<16), grpc.WithInitialConnWindowSize(1<<16))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return runtimeapi.NewRuntimeServiceClient(conn)
}

// comeAndGo is the life of a container, which may run in between.
func comeAndGo(s *node.Sandbox, runs bool) error {
	n := s.Node
	id, err := s.TryCreate(node.Script("true"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), node.Patience)
	defer cancel()
	if runs {
		if _, err := n.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
			return err
		}
	}
	_, err = n.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return err
}
