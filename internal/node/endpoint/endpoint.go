// Package endpoint reaches a CRI runtime by the client interfaces of k8s.io/cri-api:
// one behind a socket, or a daemon of this process. Nothing that uses an endpoint
// can tell which it is.
//
// It knows no runtime in particular and adds nothing to the CRI.
package endpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
)

// maxMessage bounds a reply: lists of a full node are some megabytes.
const maxMessage = 16 << 20

// dialTimeout is how long the first answer may take.
const dialTimeout = 5 * time.Second

// reconnect is how long it is waited before a runtime that is away is tried again. What gRPC
// does by itself comes to two minutes, which pods would wait once the runtime is back.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: dialTimeout,
}

// wanted is the version of the CRI that is spoken here, and no other.
const wanted = "v1"

// Endpoint is a CRI runtime. Close it when done.
type Endpoint struct {
	Runtime runtimeapi.RuntimeServiceClient
	Images  runtimeapi.ImageServiceClient
	// Name and Version are what the runtime called itself at first.
	Name, Version string
	// Address is the socket, which a daemon of this process has, too.
	Address string
	// Calls counts the calls of Runtime and Images; nil counts none.
	Calls *Calls

	conn   grpc.ClientConnInterface
	closed bool
}

// Conn is the connection below, for services beside the CRI.
func (e *Endpoint) Conn() grpc.ClientConnInterface { return e.conn }

// UseImages has a service behind another connection for images.
func (e *Endpoint) UseImages(conn grpc.ClientConnInterface) {
	e.Images = runtimeapi.NewImageServiceClient(e.Calls.Over(conn))
}

// Close closes the connection. It is safe to call twice.
func (e *Endpoint) Close() error {
	conn, ok := e.conn.(io.Closer)
	if !ok || e.closed {
		return nil
	}
	e.closed = true
	return conn.Close()
}

// Of is the endpoint behind a connection that is there already, such as that to a
// daemon of this process; address is for messages.
func Of(ctx context.Context, conn grpc.ClientConnInterface, address string) (*Endpoint, error) {
	e := &Endpoint{Address: address, Calls: NewCalls(), conn: conn}
	e.Runtime = runtimeapi.NewRuntimeServiceClient(e.Calls.Over(conn))
	e.UseImages(conn)
	is, err := e.Identify(ctx)
	if err != nil {
		_ = e.Close()
		return nil, err
	}
	e.Name, e.Version = is.Name, is.Version
	return e, nil
}

// Dial connects to a unix socket, given as a path or as unix://path, and waits
// for the runtime's first answer. The error is errdefs.ErrNotFound where no
// socket is, errdefs.ErrUnavailable where nobody serves it, and
// errdefs.ErrPrecondition where a runtime does that does not speak CRI v1.
func Dial(ctx context.Context, socket string, options ...grpc.DialOption) (*Endpoint, error) {
	conn, address, err := open(ctx, socket, options...)
	if err != nil {
		return nil, err
	}
	return Of(ctx, conn, address)
}

// DialImages is Dial for what may serve images and nothing else. It has no name and no
// version.
func DialImages(ctx context.Context, socket string) (*Endpoint, error) {
	conn, address, err := open(ctx, socket)
	if err != nil {
		return nil, err
	}
	e := &Endpoint{Images: runtimeapi.NewImageServiceClient(conn), Address: address, conn: conn}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	_, err = e.Images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented:
		err = fmt.Errorf("what serves %s has no image service of CRI %s, which Fairlead needs; upgrade it: %w (%w)", address, wanted, err, errdefs.ErrPrecondition)
	case err != nil:
		err = fmt.Errorf("ask %s for its images: %w (%w)", address, err, errdefs.ErrUnavailable)
	default:
		return e, nil
	}
	_ = e.Close()
	return nil, err
}

// open connects, and returns the address for messages as well.
func open(ctx context.Context, socket string, options ...grpc.DialOption) (*grpc.ClientConn, string, error) {
	path, err := SocketPath(socket)
	if err != nil {
		return nil, "", err
	}
	if _, err := os.Stat(path); err != nil {
		if os.IsNotExist(err) {
			return nil, "", fmt.Errorf("connect to the runtime: there is no socket %s: %w", path, errdefs.ErrNotFound)
		}
		return nil, "", fmt.Errorf("connect to the runtime: %w", err)
	}
	probe, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, "", fmt.Errorf("connect to the runtime: %w (%w)", err, errdefs.ErrUnavailable)
	}
	_ = probe.Close()
	conn, err := grpc.NewClient("unix://"+path, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(reconnect),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	}, options...)...)
	if err != nil {
		return nil, "", fmt.Errorf("connect to the runtime at %s: %w", path, err)
	}
	return conn, "unix://" + path, nil
}

// SocketPath takes the path out of "unix:///path" or "/path".
func SocketPath(socket string) (string, error) {
	path := strings.TrimPrefix(socket, "unix://")
	if !strings.HasPrefix(path, "/") {
		return "", fmt.Errorf("endpoint %q is not a unix socket such as unix:///run/fairlead/fairlead.sock: %w", socket, errdefs.ErrInvalidArgument)
	}
	return path, nil
}

// Identity is what a runtime calls itself.
type Identity struct{ Name, Version string }

// Identify asks the runtime what it is: behind the same socket may be another one by now. The
// error is errdefs.ErrPrecondition where that speaks another CRI, which waiting does not mend,
// and errdefs.ErrUnavailable where it does not answer.
func (e *Endpoint) Identify(ctx context.Context) (Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	ask := &runtimeapi.VersionRequest{Version: wanted}
	v, err := e.Runtime.Version(ctx, ask)
	switch {
	case status.Code(err) == codes.Unimplemented:
		old := &runtimeapi.VersionResponse{} // on the wire it is the same
		if e.conn != nil && e.conn.Invoke(ctx, "/runtime.v1alpha2.RuntimeService/Version", ask, old) == nil {
			return Identity{}, e.incompatible(old, "v1alpha2")
		}
		return Identity{}, fmt.Errorf("what serves %s has no CRI %s, which Fairlead needs; enable the CRI of this runtime, or upgrade it: %w (%w)", e.Address, wanted, err, errdefs.ErrPrecondition)
	case err != nil:
		return Identity{}, fmt.Errorf("ask %s for its version: %w (%w)", e.Address, err, errdefs.ErrUnavailable)
	}
	if speaks := v.GetRuntimeApiVersion(); speaks != "" && speaks != wanted {
		return Identity{}, e.incompatible(v, speaks)
	}
	return Identity{v.GetRuntimeName(), v.GetRuntimeVersion()}, nil
}

// Stays says that the runtime is a daemon that is there for itself, and not one within a
// command, with which it ends. Others than Fairlead's do not say.
func (e *Endpoint) Stays(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	s, err := e.Runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return false, fmt.Errorf("ask %s for its status: %w", e.Address, err)
	}
	var process struct {
		Stays bool `json:"stays"`
	}
	said := json.Unmarshal([]byte(s.GetInfo()["process"]), &process) == nil
	return said && process.Stays, nil
}

func (e *Endpoint) incompatible(v *runtimeapi.VersionResponse, speaks string) error {
	return fmt.Errorf("%s %s at %s speaks CRI %s, and Fairlead needs CRI %s; upgrade the runtime: %w",
		v.GetRuntimeName(), v.GetRuntimeVersion(), e.Address, speaks, wanted, errdefs.ErrPrecondition)
}
