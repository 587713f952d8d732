package probe

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// tryGRPC wants the health service to say that a service serves.
func (t *Target) tryGRPC(ctx context.Context, a *corev1.GRPCAction) Result {
	address, err := t.address("", intstr.FromInt32(a.Port))
	if err != nil {
		return Result{Unknown, err.Error()}
	}
	var lacks atomic.Pointer[error] // what a connection could not be made for
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil && short(err) {
			lacks.Store(&err)
		}
		return conn, err
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithUserAgent(probing), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return Result{Unknown, err.Error()}
	}
	defer func() { _ = conn.Close() }()
	r := &grpc_health_v1.HealthCheckRequest{}
	if a.Service != nil {
		r.Service = *a.Service
	}
	resp, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, r)
	switch code := status.Code(err); {
	case err != nil && lacks.Load() != nil:
		return failed(*lacks.Load())
	case code == codes.Unimplemented:
		return Result{Failure, "the server has no service grpc.health.v1.Health"}
	case code == codes.DeadlineExceeded, code == codes.Canceled: // the server knows the deadline, too
		return Result{Failure, late}
	case err != nil:
		return Result{Failure, status.Convert(err).Message()}
	case resp.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING:
		return Result{Failure, fmt.Sprintf("service %q is %s", r.GetService(), resp.GetStatus())}
	}
	return Result{Outcome: Success}
}
