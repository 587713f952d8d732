package inprocess

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// service answers with what it was asked, in ways that the tests choose.
type service struct {
	testgrpc.UnimplementedTestServiceServer
	asked   *testgrpc.SimpleRequest // the last
	hang    chan struct{}           // until it is closed, calls do not return
	entered chan struct{}
}

func (s *service) UnaryCall(ctx context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	s.asked = r
	if s.hang != nil {
		close(s.entered)
		<-s.hang
	}
	if c := r.GetResponseStatus(); c != nil {
		return nil, status.Error(codes.Code(c.GetCode()), c.GetMessage())
	}
	user := strings.Join(metadata.ValueFromIncomingContext(ctx, "user"), ",")
	if sent, _ := metadata.FromOutgoingContext(ctx); len(sent) > 0 {
		user += " and what the caller sends would be sent on"
	}
	return &testgrpc.SimpleResponse{Payload: r.GetPayload(), Username: user}, nil
}

func (s *service) EmptyCall(context.Context, *testgrpc.Empty) (*testgrpc.Empty, error) {
	return nil, errors.New("no status")
}

// FullDuplexCall echoes until an empty payload, which is an error.
func (s *service) FullDuplexCall(stream testgrpc.TestService_FullDuplexCallServer) error {
	for {
		r, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case len(r.GetPayload().GetBody()) == 0:
			return status.Error(codes.DataLoss, "nothing to echo")
		}
		if err := stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: r.GetPayload()}); err != nil {
			return err
		}
	}
}

// StreamingOutputCall says that it is there, and then sends without end.
func (s *service) StreamingOutputCall(_ *testgrpc.StreamingOutputCallRequest, stream testgrpc.TestService_StreamingOutputCallServer) error {
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	for {
		if err := stream.Send(&testgrpc.StreamingOutputCallResponse{}); err != nil {
			close(s.entered)
			return err
		}
	}
}

func connected(s *service) testgrpc.TestServiceClient {
	c := New(Options{})
	testgrpc.RegisterTestServiceServer(c, s)
	return testgrpc.NewTestServiceClient(c)
}

func TestCall(t *testing.T) {
	s := &service{}
	client := connected(s)
	request := &testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: []byte("body")}}
	got, err := client.UnaryCall(metadata.AppendToOutgoingContext(t.Context(), "user", "me"), request)
	if err != nil || string(got.GetPayload().GetBody()) != "body" || got.GetUsername() != "me" {
		t.Fatalf("%v %v", got, err)
	}
	if s.asked == request || &s.asked.GetPayload().GetBody()[0] == &request.GetPayload().GetBody()[0] || &got.GetPayload().GetBody()[0] == &s.asked.GetPayload().GetBody()[0] {
		t.Error("messages are shared between caller and service")
	}
	_, err = client.UnaryCall(t.Context(), &testgrpc.SimpleRequest{ResponseStatus: &testgrpc.EchoStatus{Code: int32(codes.Aborted), Message: "no"}})
	if status.Code(err) != codes.Aborted || status.Convert(err).Message() != "no" {
		t.Error(err)
	}
	if _, err = client.EmptyCall(t.Context(), &testgrpc.Empty{}); status.Code(err) != codes.Unknown || status.Convert(err).Message() != "no status" {
		t.Error(err)
	}
	if _, err = testgrpc.NewTestServiceClient(New(Options{})).UnaryCall(t.Context(), request); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
}

// Whoever gives up does not wait for a service that hangs.
func TestCallsAreLeft(t *testing.T) {
	s := &service{hang: make(chan struct{}), entered: make(chan struct{})}
	defer close(s.hang)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-s.entered
		cancel()
	}()
	if _, err := connected(s).UnaryCall(ctx, &testgrpc.SimpleRequest{}); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	if _, err := connected(s).UnaryCall(ctx, &testgrpc.SimpleRequest{}); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	late, end := context.WithDeadline(t.Context(), time.Now())
	defer end()
	if _, err := connected(s).UnaryCall(late, &testgrpc.SimpleRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
}

func TestStream(t *testing.T) {
	stream, err := connected(&service{}).FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 * buffered {
		if err := stream.Send(&testgrpc.StreamingOutputCallRequest{Payload: &testgrpc.Payload{Body: []byte("a")}}); err != nil {
			t.Fatal(err)
		}
		if got, err := stream.Recv(); err != nil || string(got.GetPayload().GetBody()) != "a" {
			t.Fatalf("%v %v", got, err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("a good end: %v", err)
	}
	if stream, err = connected(&service{}).FullDuplexCall(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stream.Send(&testgrpc.StreamingOutputCallRequest{Payload: &testgrpc.Payload{Body: []byte("a")}}), stream.Send(&testgrpc.StreamingOutputCallRequest{})); err != nil {
		t.Fatal(err)
	}
	<-stream.Context().Done()
	if got, err := stream.Recv(); err != nil || string(got.GetPayload().GetBody()) != "a" {
		t.Errorf("what was sent before the end: %v %v", got, err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.DataLoss {
		t.Errorf("a bad end: %v", err)
	}
	if err := stream.Send(&testgrpc.StreamingOutputCallRequest{}); !errors.Is(err, io.EOF) {
		t.Errorf("sent after the end: %v", err)
	}
}

// A service that sends more than anybody reads waits, and ends with its caller.
func TestStreamsAreLeft(t *testing.T) {
	s := &service{entered: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := connected(s).StreamingOutputCall(ctx, &testgrpc.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-s.entered
	for err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Canceled {
		t.Error(err)
	}
}

func TestEnded(t *testing.T) {
	ended := make(chan struct{})
	c := New(Options{Ended: ended})
	testgrpc.RegisterTestServiceServer(c, &service{})
	client := testgrpc.NewTestServiceClient(c)
	if _, err := client.UnaryCall(t.Context(), &testgrpc.SimpleRequest{}); err != nil {
		t.Error(err)
	}
	close(ended)
	if _, err := client.UnaryCall(t.Context(), &testgrpc.SimpleRequest{}); !errors.Is(err, ErrEnded) {
		t.Error(err)
	}
	if _, err := client.FullDuplexCall(t.Context()); !errors.Is(err, ErrEnded) {
		t.Error(err)
	}
}

// The first interceptor is the outermost, as with a gRPC server.
func TestInterceptors(t *testing.T) {
	var order atomic.Value
	order.Store("")
	note := func(name string) { order.Store(order.Load().(string) + name) }
	unary := func(name string) grpc.UnaryServerInterceptor {
		return func(ctx context.Context, r any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			note(name + info.FullMethod + " ")
			return next(ctx, r)
		}
	}
	streams := func(name string) grpc.StreamServerInterceptor {
		return func(s any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			note(name + info.FullMethod + " ")
			return next(s, ss)
		}
	}
	c := New(Options{Unary: []grpc.UnaryServerInterceptor{unary("a"), unary("b")}, Streams: []grpc.StreamServerInterceptor{streams("c"), streams("d")}})
	testgrpc.RegisterTestServiceServer(c, &service{})
	client := testgrpc.NewTestServiceClient(c)
	if _, err := client.UnaryCall(t.Context(), &testgrpc.SimpleRequest{}); err != nil {
		t.Fatal(err)
	}
	stream, err := client.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.CloseSend()
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	const at = "/grpc.testing.TestService/"
	if want := "a" + at + "UnaryCall b" + at + "UnaryCall c" + at + "FullDuplexCall d" + at + "FullDuplexCall "; order.Load() != want {
		t.Errorf("%s, want %s", order.Load(), want)
	}
}
