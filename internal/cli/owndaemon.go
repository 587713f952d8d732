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
	"fairlead.run/internal/inprocess"
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
	lasts  bool           // a daemon that stays has its place kept while it is away
	theirs bool           // such a one has served last
	own    *daemon.Daemon // nil while we have none
	cancel context.CancelFunc
	ended  chan error
}

// connect is an endpoint that lasts as long as the command.
func (o *ownDaemon) connect(ctx context.Context) (*endpoint.Endpoint, error) {
	e, err := o.ensure(ctx)
	if err != nil {
		return nil, err
	}
	return endpoint.Of(ctx, &steady{own: o, now: e}, e.Address)
}

// last leaves its place to a daemon that stays, while that is away as well: calls fail then,
// until it is back.
func (o *ownDaemon) last(ctx context.Context, e *endpoint.Endpoint) {
	is, err := e.Stays(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lasts, o.theirs = true, is && err == nil
}

// ensure connects to the daemon that serves, or to a new one of our own.
func (o *ownDaemon) ensure(ctx context.Context) (*endpoint.Endpoint, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	giveUp := time.Now().Add(takeOverTimeout)
	for {
		e, err := endpoint.Dial(ctx, address(o.cfg))
		if err == nil {
			if is, err := e.Stays(ctx); err == nil {
				o.theirs = o.lasts && is
			}
			return e, nil
		}
		if o.theirs {
			return nil, fmt.Errorf("the daemon is away, and is waited for: %w", err)
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
			return endpoint.Of(ctx, o.own.Server().Direct(), o.own.Endpoint())
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
	if o.own != nil { // ours has ended by itself
		o.cancel()
		o.own = nil
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
	o.own, o.cancel, o.ended = d, cancel, make(chan error, 1)
	go func(ended chan<- error) { ended <- d.Run(own) }(o.ended)
	return nil
}

// end ends our own daemon, if there is one.
func (o *ownDaemon) end() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.own == nil {
		return nil
	}
	o.cancel()
	o.own = nil
	select {
	case err := <-o.ended:
		return err
	case <-time.After(endTimeout):
		return fmt.Errorf("end the daemon: %w", errdefs.ErrDeadline)
	}
}

// steady is a connection to whichever daemon serves: where one went away with its
// command, calls are made again with another.
type steady struct {
	own *ownDaemon

	mu   sync.Mutex
	now  *endpoint.Endpoint
	gone []*endpoint.Endpoint // calls of others may still be on them
}

// Invoke implements grpc.ClientConnInterface.
func (s *steady) Invoke(ctx context.Context, method string, request, reply any, opts ...grpc.CallOption) error {
	e := s.current()
	err := e.Conn().Invoke(ctx, method, request, reply, opts...)
	if ctx.Err() != nil || !connectionLost(err) {
		return err
	}
	e, again := s.replace(ctx, e)
	if again != nil {
		return errors.Join(err, again)
	}
	return e.Conn().Invoke(ctx, method, request, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface. A stream that is lost is its
// caller's to open again.
func (s *steady) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return s.current().Conn().NewStream(ctx, desc, method, opts...)
}

func (s *steady) current() *endpoint.Endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// replace finds another daemon, unless somebody has done so since.
func (s *steady) replace(ctx context.Context, lost *endpoint.Endpoint) (*endpoint.Endpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != lost {
		return s.now, nil
	}
	e, err := s.own.ensure(ctx)
	if err != nil {
		return nil, err
	}
	s.gone, s.now = append(s.gone, lost), e
	return e, nil
}

// Close closes all that there were.
func (s *steady) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.now.Close()}
	for _, e := range s.gone {
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}

// connectionLost tells a daemon that is away from one that says that something
// is unavailable.
func connectionLost(err error) bool {
	if errors.Is(err, inprocess.ErrEnded) {
		return true
	}
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
