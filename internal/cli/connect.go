package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"time"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/daemon"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/endpoint"
)

// rpcPrefix is what gRPC puts before a server's own words.
var rpcPrefix = regexp.MustCompile(`rpc error: code = \w+ desc = `)

// session is a connection to a runtime, and the daemon if it is our own.
type session struct {
	*endpoint.Endpoint
	cfg    *config.Config
	cancel context.CancelFunc // nil if the daemon is not ours
	ended  chan error
}

// connect uses the daemon that runs, or starts one within this process. With
// --endpoint only that one will do.
func (a *app) connect(ctx context.Context) (*session, error) {
	cfg, err := a.loadConfig()
	if err != nil {
		return nil, err
	}
	if a.endpoint != "" {
		e, err := endpoint.Dial(ctx, a.endpoint)
		return &session{Endpoint: e, cfg: cfg}, err
	}
	address := cfg.Listen
	if address == "" {
		address = "unix://" + filepath.Join(cfg.State, "fairlead.sock")
	}
	e, err := endpoint.Dial(ctx, address)
	if err == nil {
		return &session{Endpoint: e, cfg: cfg}, nil
	}
	if !errors.Is(err, errdefs.ErrNotFound) && !errors.Is(err, errdefs.ErrUnavailable) {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("no daemon serves %s, and only root can start one: %w", address, errdefs.ErrPrecondition)
	}
	s, err := a.startOwn(ctx, cfg)
	if err == nil {
		return s, nil
	}
	// Another command may have started its own in the same moment.
	if e, again := endpoint.Dial(ctx, address); again == nil {
		return &session{Endpoint: e, cfg: cfg}, nil
	}
	return nil, err
}

// startOwn starts the daemon within this process. It serves its socket too, so
// that commands in other terminals find the pods.
func (a *app) startOwn(ctx context.Context, cfg *config.Config) (*session, error) {
	// Warnings are for a daemon's log. What a command needs to know comes as errors.
	log := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelError}))
	// The daemon outlives a signal: it is needed to stop the pods.
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d, err := daemon.Open(own, cfg, daemon.Options{Version: a.version, Log: log})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	s := &session{cfg: cfg, cancel: cancel, ended: make(chan error, 1)}
	go func() { s.ended <- d.Run(own) }()
	s.Endpoint, err = endpoint.Dial(ctx, d.Endpoint())
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// close ends the connection, and our own daemon. Pods go on.
func (s *session) close() error {
	var err error
	if s.Endpoint != nil {
		err = s.Endpoint.Close()
	}
	if s.cancel == nil {
		return err
	}
	s.cancel()
	select {
	case ended := <-s.ended:
		return errors.Join(err, ended)
	case <-time.After(30 * time.Second):
		return errors.Join(err, fmt.Errorf("end the daemon: %w", errdefs.ErrDeadline))
	}
}

// with connects, does something and closes.
func (a *app) with(ctx context.Context, do func(*session) error) error {
	s, err := a.connect(ctx)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.close())
}
