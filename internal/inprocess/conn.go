// Package inprocess calls gRPC services of this process: a Conn is what they are
// registered with, and the connection of their clients. Messages are copied, not
// encoded, and nothing goes through a socket.
//
// It has what the services here need of gRPC: deadlines, cancellation, metadata of
// requests, interceptors of the server, and streams. Headers and trailers of
// answers, credentials and options of calls have no meaning.
package inprocess

import (
	"context"
	"fmt"
	"path"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// ErrEnded is the error of calls after the end of the services.
var ErrEnded = status.Error(codes.Unavailable, "the services of this process have ended")

// Options say how a Conn calls.
type Options struct {
	// Calls go through these interceptors, the first of each being the outermost.
	Unary   []grpc.UnaryServerInterceptor
	Streams []grpc.StreamServerInterceptor
	// Encoded are the methods, by the last part of their names, whose answers have
	// fields that are encoded already, and so unknown to the message: these answers
	// are encoded and decoded, as through a socket.
	Encoded map[string]bool
	// Ended is closed when the services take no more calls; nil for never.
	Ended <-chan struct{}
}

// Conn is both ends. Services are registered before the first call.
type Conn struct {
	ended        <-chan struct{}
	encoded      map[string]bool
	around       grpc.UnaryServerInterceptor
	aroundStream grpc.StreamServerInterceptor
	calls        map[string]call
	streams      map[string]streamer
}

var (
	_ grpc.ClientConnInterface = (*Conn)(nil)
	_ grpc.ServiceRegistrar    = (*Conn)(nil)
)

// call is a method with one answer.
type call struct {
	service any
	handler grpc.MethodHandler
}

// streamer is a method with any number of them.
type streamer struct {
	service any
	desc    grpc.StreamDesc
}

// New makes a Conn without services.
func New(o Options) *Conn {
	return &Conn{
		ended: o.Ended, encoded: o.Encoded, around: chain(o.Unary), aroundStream: chainStreams(o.Streams),
		calls: map[string]call{}, streams: map[string]streamer{},
	}
}

// RegisterService implements grpc.ServiceRegistrar.
func (c *Conn) RegisterService(desc *grpc.ServiceDesc, service any) {
	for _, m := range desc.Methods {
		c.calls["/"+desc.ServiceName+"/"+m.MethodName] = call{service, m.Handler}
	}
	for _, s := range desc.Streams {
		c.streams["/"+desc.ServiceName+"/"+s.StreamName] = streamer{service, s}
	}
}

// answer is how a call has ended.
type answer struct {
	message any
	err     error
}

// Invoke makes a call. As through a socket, whoever gives up has an error at once,
// and the service finds its context ended.
func (c *Conn) Invoke(ctx context.Context, method string, request, reply any, _ ...grpc.CallOption) error {
	m, ok := c.calls[method]
	if !ok {
		return unknown(method)
	}
	if err := c.may(ctx); err != nil {
		return err
	}
	inner, cancel := context.WithCancel(serverContext(ctx))
	defer cancel()
	// The request is the caller's, and may be another when this returns.
	read, ended := make(chan struct{}), make(chan answer, 1)
	go func() {
		message, err := m.handler(m.service, inner, func(into any) error {
			defer close(read)
			return transfer(into, request)
		}, c.around)
		ended <- answer{message, err}
	}()
	select {
	case a := <-ended:
		return c.give(reply, a, method)
	case <-ctx.Done():
	}
	select {
	case <-read:
	case a := <-ended:
		return c.give(reply, a, method)
	}
	return status.FromContextError(ctx.Err()).Err()
}

func (c *Conn) give(reply any, a answer, method string) error {
	switch {
	case a.err != nil:
		return withStatus(a.err)
	case c.encoded[path.Base(method)]:
		return recode(reply, a.message)
	}
	return transfer(reply, a.message)
}

// NewStream begins a call with streams.
func (c *Conn) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	m, ok := c.streams[method]
	if !ok {
		return nil, unknown(method)
	}
	if err := c.may(ctx); err != nil {
		return nil, err
	}
	s := newStream(ctx)
	s.encoded = c.encoded[path.Base(method)]
	info := &grpc.StreamServerInfo{FullMethod: method, IsClientStream: m.desc.ClientStreams, IsServerStream: m.desc.ServerStreams}
	go func() {
		s.end(withStatus(c.aroundStream(m.service, serverEnd{s}, info, m.desc.Handler)))
	}()
	return clientEnd{s}, nil
}

// may says why there can be no call now.
func (c *Conn) may(ctx context.Context) error {
	select {
	case <-c.ended:
		return ErrEnded
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	default:
		return nil
	}
}

func unknown(method string) error {
	return status.Errorf(codes.Unimplemented, "no service of this process has a method %s", method)
}

// serverContext has the metadata that the caller sends as that which came in.
func serverContext(ctx context.Context) context.Context {
	sent, _ := metadata.FromOutgoingContext(ctx)
	ctx = metadata.NewOutgoingContext(ctx, nil)
	return metadata.NewIncomingContext(ctx, sent)
}

// withStatus is an error as a client has it, whatever the service returned.
func withStatus(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Convert(err).Err()
}

// transfer copies a message into an empty one.
func transfer(into, from any) error {
	to, ok := into.(proto.Message)
	message, also := from.(proto.Message)
	if !ok || !also {
		return status.Error(codes.Internal, fmt.Sprintf("copy a %T into a %T: both have to be messages", from, into))
	}
	if to.ProtoReflect().Descriptor() != message.ProtoReflect().Descriptor() {
		return status.Error(codes.Internal, fmt.Sprintf("copy a %T into a %T: they are not of one type", from, into))
	}
	proto.Reset(to)
	proto.Merge(to, message)
	return nil
}

// recode copies a message as a socket would.
func recode(into, from any) error {
	to, ok := into.(proto.Message)
	message, also := from.(proto.Message)
	if !ok || !also {
		return transfer(into, from)
	}
	text, err := proto.Marshal(message)
	if err != nil {
		return status.Errorf(codes.Internal, "encode a %T: %v", from, err)
	}
	if err := proto.Unmarshal(text, to); err != nil {
		return status.Errorf(codes.Internal, "decode a %T: %v", into, err)
	}
	return nil
}

// chain makes one interceptor of several.
func chain(all []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		for i := len(all) - 1; i >= 0; i-- {
			one, next := all[i], handler
			handler = func(ctx context.Context, request any) (any, error) { return one(ctx, request, info, next) }
		}
		return handler(ctx, request)
	}
}

func chainStreams(all []grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	return func(service any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		for i := len(all) - 1; i >= 0; i-- {
			one, next := all[i], handler
			handler = func(service any, ss grpc.ServerStream) error { return one(service, ss, info, next) }
		}
		return handler(service, ss)
	}
}
