package endpoint

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Local makes an endpoint of servers in this process. A call is a call: no
// socket, no gRPC. The interceptor runs around it as it would in a gRPC server;
// nil means none. Streaming calls are refused.
func Local(r runtimeapi.RuntimeServiceServer, i runtimeapi.ImageServiceServer, interceptor grpc.UnaryServerInterceptor) *Endpoint {
	c := &local{methods: map[string]method{}, interceptor: interceptor}
	c.register(&runtimeapi.RuntimeService_ServiceDesc, r)
	c.register(&runtimeapi.ImageService_ServiceDesc, i)
	return &Endpoint{
		Runtime: runtimeapi.NewRuntimeServiceClient(c), Images: runtimeapi.NewImageServiceClient(c),
		Address: "in-process", Name: "fairlead",
	}
}

type method struct {
	server any
	desc   grpc.MethodDesc
}

// local implements grpc.ClientConnInterface by calling handlers.
type local struct {
	methods     map[string]method // "/service/method"
	interceptor grpc.UnaryServerInterceptor
}

func (l *local) register(d *grpc.ServiceDesc, server any) {
	for _, m := range d.Methods {
		l.methods["/"+d.ServiceName+"/"+m.MethodName] = method{server, m}
	}
}

// Invoke copies messages in both directions, so that client and server never
// share memory, as over a socket.
func (l *local) Invoke(ctx context.Context, name string, args, reply any, _ ...grpc.CallOption) error {
	m, ok := l.methods[name]
	if !ok {
		return status.Errorf(codes.Unimplemented, "unknown method %s", name)
	}
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	decode := func(into any) error { return copyMessage(into, args) }
	out, err := m.desc.Handler(m.server, ctx, decode, l.interceptor)
	if err != nil {
		if s, ok := status.FromError(err); ok {
			return s.Err()
		}
		return status.Error(codes.Unknown, err.Error())
	}
	return copyMessage(reply, out)
}

func copyMessage(to, from any) error {
	dst, ok := to.(proto.Message)
	src, ok2 := from.(proto.Message)
	if !ok || !ok2 {
		return status.Error(codes.Internal, fmt.Sprintf("cannot copy %T to %T", from, to))
	}
	// A copy in memory would not do: a server may have encoded parts of its answer.
	encoded, err := proto.Marshal(src)
	if err == nil {
		err = proto.Unmarshal(encoded, dst)
	}
	if err != nil {
		return status.Error(codes.Internal, fmt.Sprintf("copy %T: %v", from, err))
	}
	return nil
}

// NewStream refuses: a stream needs a connection.
func (l *local) NewStream(_ context.Context, _ *grpc.StreamDesc, name string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Errorf(codes.Unimplemented, "%s streams, which needs a socket; the runtime runs in this process",
		name[strings.LastIndexByte(name, '/')+1:])
}
