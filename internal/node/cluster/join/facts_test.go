package join

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/endpoint"
)

// release is one of a runtime, which speaks one version of the CRI.
type release struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	version, speaks string
}

func (r release) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "fake", RuntimeVersion: r.version, RuntimeApiVersion: r.speaks}, nil
}

func (release) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
	}}}, nil
}

// serve has a runtime serve a socket until it is told to end.
func serve(t *testing.T, path string, r runtimeapi.RuntimeServiceServer) (end func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	if r != nil {
		runtimeapi.RegisterRuntimeServiceServer(server, r)
	}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return server.Stop
}

// TestRuntimeIsChanged has the node not ready, with one event, while a runtime serves the
// socket that cannot be used, and ready again when one is back that can.
func TestRuntimeIsChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	end := serve(t, path, release{version: "1", speaks: "v1"})
	e, err := endpoint.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	var warned []string
	changed := 0
	f := facts{endpoint: e, latest: &latest{}, warn: func(reason, message string) { warned = append(warned, reason+": "+message) }, changed: func() { changed++ }}
	f.runtime.NotReady = []string{"not asked"}
	// until asks until the node says so. The connection to a runtime that was started anew takes its time.
	until := func(want string) string {
		t.Helper()
		for t.Context().Err() == nil {
			f.ask(t.Context(), false)
			if got := strings.Join(f.now().Runtime.NotReady, "; "); got == want || want != "" && strings.Contains(got, want) {
				return got
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("the node is never %q", want)
		return ""
	}
	until("")
	for i, tt := range []struct {
		next  runtimeapi.RuntimeServiceServer
		want  string
		warns int
	}{
		{release{version: "9", speaks: "v2"}, "container runtime is not compatible: fake 9 at unix://" + path + " speaks CRI v2, and Fairlead needs CRI v1; upgrade the runtime", 1},
		{release{version: "9", speaks: "v2"}, "is not compatible: fake 9", 1}, // it was only started again
		{nil, "is not compatible: what serves unix://" + path + " has no CRI v1", 2},
		{release{version: "2", speaks: "v1"}, "", 2},
		{nil, "has no CRI v1", 3},
		{release{version: "3", speaks: "v1"}, "", 3},
	} {
		end()
		until("container runtime is down")
		end = serve(t, path, tt.next)
		until(tt.want)
		f.ask(t.Context(), false) // once more, which is no news
		if len(warned) != tt.warns {
			t.Errorf("%d: told %q, want %d", i, warned, tt.warns)
		}
	}
	if !strings.HasPrefix(warned[0], "IncompatibleRuntime: ") || !strings.Contains(warned[0], "upgrade the runtime") {
		t.Errorf("told %q", warned)
	}
	if got := f.now().Info.ContainerRuntimeVersion; got != "fake://3" {
		t.Errorf("the node has %s", got)
	}
	if changed < 13 {
		t.Errorf("the cluster was told %d times that there is something new", changed)
	}
}

// TestRuntimeIsAwayForAMoment has the node stay what it is while its runtime is started anew, and not
// ready once that takes too long.
func TestRuntimeIsAwayForAMoment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	end := serve(t, path, release{version: "1", speaks: "v1"})
	e, err := endpoint.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	changed := 0
	f := facts{endpoint: e, away: runtimeAway, latest: &latest{}, changed: func() { changed++ }}
	f.runtime.NotReady = []string{"not asked"}
	f.ask(t.Context(), false)
	end()
	for range 3 {
		f.ask(t.Context(), false)
	}
	if got := f.now().Runtime.NotReady; len(got) > 0 || changed != 1 {
		t.Errorf("not ready after a moment: %q; the cluster was told %d times", got, changed)
	}
	f.heard = f.heard.Add(-runtimeAway)
	f.ask(t.Context(), false)
	if got := strings.Join(f.now().Runtime.NotReady, "; "); !strings.HasPrefix(got, "container runtime is down: ") || changed != 2 {
		t.Errorf("not ready after %s: %q; the cluster was told %d times", runtimeAway, got, changed)
	}
}
