package criserver

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/inprocess"
)

// Whoever calls from within the process has the same answers and errors as through
// a socket.
func TestDirectIsAsASocket(t *testing.T) {
	bySocket := serve(t, newFake().server(t, nil))
	directly := newFake().server(t, nil).Direct()
	for name, fill := range map[string]*filler{"empty": nil, "texts": {depth: 3, text: "x", number: 1, count: 1}} {
		eachCall(t, func(call, method string, request, reply protoreflect.MessageType) {
			r := request.New()
			if fill != nil {
				fill.message(r, fill.depth)
			}
			one, other := reply.New().Interface(), reply.New().Interface()
			err := bySocket.Invoke(t.Context(), method, r.Interface(), one)
			errToo := directly.Invoke(t.Context(), method, r.Interface(), other)
			if status.Code(err) != status.Code(errToo) || status.Convert(err).Message() != status.Convert(errToo).Message() {
				t.Errorf("%s with %s: %v by socket, %v directly", call, name, err, errToo)
			}
			for _, tells := range []string{"Status", "ImageFsInfo"} { // the time
				if call == tells {
					return
				}
			}
			if !proto.Equal(one, other) {
				t.Errorf("%s with %s: %v by socket, %v directly", call, name, one, other)
			}
		})
	}
}

// The same holds for what comes in parts.
func TestDirectStreams(t *testing.T) {
	bySocket, directly := cri.NewRuntimeServiceClient(serve(t, newFake().server(t, nil))), cri.NewRuntimeServiceClient(newFake().server(t, nil).Direct())
	parts := func(c cri.RuntimeServiceClient) []proto.Message {
		var out []proto.Message
		stats, err := c.StreamContainerStats(t.Context(), &cri.StreamContainerStatsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for m, err := stats.Recv(); err == nil; m, err = stats.Recv() {
			out = append(out, m)
		}
		list, err := c.StreamContainers(t.Context(), &cri.StreamContainersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for m, err := list.Recv(); err == nil; m, err = list.Recv() {
			out = append(out, m)
		}
		return out
	}
	one, other := parts(bySocket), parts(directly)
	if len(one) < 2 || len(one) != len(other) {
		t.Fatalf("%d parts by socket, %d directly", len(one), len(other))
	}
	for i := range one {
		if !proto.Equal(one[i], other[i]) {
			t.Errorf("%v by socket, %v directly", one[i], other[i])
		}
	}
}

func TestDirectEndsWithTheServer(t *testing.T) {
	s := newFake().server(t, nil)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "cri.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	client := cri.NewRuntimeServiceClient(s.Direct())
	if _, err := client.Version(t.Context(), &cri.VersionRequest{}); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := client.Version(t.Context(), &cri.VersionRequest{}); status.Code(err) != codes.Unavailable || err.Error() != inprocess.ErrEnded.Error() {
		t.Error(err)
	}
}
