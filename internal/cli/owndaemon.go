package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/daemon"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/endpoint"
)

// How long to wait for the state directory, while the command that had it
// leaves, and for our own daemon to end.
const (
	takeOverTimeout = 10 * time.Second
	takeOverPause   = 50 * time.Millisecond
	endTimeout      = 30 * time.Second
)

// ownDaemon is the daemon that commands keep alive between them: whoever finds
// none serving starts one within itself. When a command ends, its daemon ends
// with it, and the next call of another command that used it starts another.
// The daemon's calls may all be repeated, so nobody notices.
type ownDaemon struct {
	cfg     *config.Config
	version string
	errOut  io.Writer

	mu     sync.Mutex
	cancel context.CancelFunc // nil while we have none
	ended  chan error
}

// ensure connects to the daemon that serves, or to a new one of our own.
func (o *ownDaemon) ensure(ctx context.Context) (*endpoint.Endpoint, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	giveUp := time.Now().Add(takeOverTimeout)
	for {
		e, err := endpoint.Dial(ctx, address(o.cfg), grpc.WithUnaryInterceptor(o.repeat))
		if err == nil {
			return e, nil
		}
		if ctx.Err() != nil { // nothing answers such a call, and our own daemon may be well
			return nil, errors.Join(ctx.Err(), err)
		}
		if !errors.Is(err, errdefs.ErrNotFound) && !errors.Is(err, errdefs.ErrUnavailable) {
			return nil, err
		}
		if err := needRoot(address(o.cfg)); err != nil {
			return nil, err
		}
		// Unavailable: another command has the state directory, and either just
		// started and serves soon, or just ended and leaves soon.
		if err = o.start(ctx); err != nil && (!errors.Is(err, errdefs.ErrUnavailable) || time.Now().After(giveUp)) {
			return nil, fmt.Errorf("start the daemon: %w", err)
		}
		if err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(takeOverPause):
		}
	}
}

// start starts the daemon. It serves its socket too, so that commands in other
// terminals find the pods.
func (o *ownDaemon) start(ctx context.Context) error {
	if o.cancel != nil { // ours has ended by itself
		o.cancel()
		o.cancel = nil
		if err := <-o.ended; err != nil {
			return err
		}
	}
	// Warnings are for a daemon's log. What a command needs to know comes as errors.
	log := slog.New(slog.NewTextHandler(o.errOut, &slog.HandlerOptions{Level: slog.LevelError}))
	// The daemon outlives a signal: it is needed to stop the pods.
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d, err := daemon.Open(own, o.cfg, daemon.Options{Version: o.version, Log: log})
	if err != nil {
		cancel()
		return err
	}
	o.cancel, o.ended = cancel, make(chan error, 1)
	go func(ended chan<- error) { ended <- d.Run(own) }(o.ended)
	return nil
}

// end ends our own daemon, if there is one.
func (o *ownDaemon) end() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cancel == nil {
		return nil
	}
	o.cancel()
	o.cancel = nil
	select {
	case err := <-o.ended:
		return err
	case <-time.After(endTimeout):
		return fmt.Errorf("end the daemon: %w", errdefs.ErrDeadline)
	}
}

// repeat is around every call: where the daemon went away with its command,
// the call is made again with another.
//
// Larger: the parameters are those of grpc.UnaryClientInterceptor.
func (o *ownDaemon) repeat(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := call(ctx, method, req, reply, cc, opts...)
	if ctx.Err() != nil || !connectionLost(err) || strings.HasSuffix(method, "/Version") { // ensure itself asks for the version
		return err
	}
	e, ensureErr := o.ensure(ctx)
	if ensureErr != nil {
		return errors.Join(err, ensureErr)
	}
	_ = e.Close()
	cc.ResetConnectBackoff()
	return call(ctx, method, req, reply, cc, append(opts, grpc.WaitForReady(true))...)
}

// connectionLost tells a daemon that is away from one that says that something
// is unavailable.
func connectionLost(err error) bool {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.Unavailable {
		return false
	}
	for _, mark := range []string{"connection error", "error reading from server", "transport is closing", "closing transport"} {
		if strings.Contains(s.Message(), mark) {
			return true
		}
	}
	return false
}
