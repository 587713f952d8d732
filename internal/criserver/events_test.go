package criserver

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

func follow(t *testing.T, f *fake) cri.RuntimeService_GetContainerEventsClient {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	events, err := cri.NewRuntimeServiceClient(serve(t, f.server(t, nil))).GetContainerEvents(ctx, &cri.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.Header(); err != nil {
		t.Fatal(err)
	}
	return events
}

func TestContainerEvents(t *testing.T) {
	f := newFake()
	f.notices = make(chan pod.Notice, 10)
	events := follow(t, f)
	p := f.pods[0]
	c := p.Containers[2]
	for kind, want := range eventTypes {
		f.notices <- pod.Notice{Kind: kind, ID: string(c.ID), At: time.Unix(0, 77), Record: p}
		e, err := events.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e.ContainerId != string(c.ID) || e.ContainerEventType != want || e.CreatedAt != 77 || e.PodSandboxStatus.GetId() != string(p.ID) {
			t.Errorf("%s: %v", kind, e)
		}
		if e.PodSandboxStatus.GetMetadata().GetUid() != "u1" || len(e.ContainersStatuses) != 4 || e.ContainersStatuses[1].GetId() != string(c.ID) {
			t.Errorf("%s: %v", kind, e)
		}
	}
}

func TestASlowReaderOfEventsIsCut(t *testing.T) {
	f := newFake()
	f.notices = make(chan pod.Notice, 1)
	events := follow(t, f)
	f.notices <- pod.Notice{Kind: pod.NoticeStopped, ID: "x", Record: f.pods[0]}
	close(f.notices)
	if e, err := events.Recv(); err != nil || e.ContainerId != "x" {
		t.Errorf("what came in time: %v %v", e, err)
	}
	if _, err := events.Recv(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "begin anew") {
		t.Error(err)
	}
}

// A stream that never ends by itself must not hold up the end of the daemon.
func TestEventsEndWithTheServer(t *testing.T) {
	f := newFake()
	f.notices = make(chan pod.Notice)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "cri.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	s := f.server(t, nil)
	go func() { ended <- s.Serve(ctx, l) }()
	conn, err := grpc.NewClient("unix://"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	events, err := cri.NewRuntimeServiceClient(conn).GetContainerEvents(t.Context(), &cri.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.Header(); err != nil {
		t.Fatal(err)
	}
	cancel()
	// A server that is stopped by force says nothing of the daemon.
	if _, err := events.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the daemon ends") {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := f.calls[len(f.calls)-1]; got != "stop following" {
		t.Errorf("the last call was %q", got)
	}
}
