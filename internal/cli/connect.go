package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/endpoint"
)

// rpcPrefix is what gRPC puts before a server's own words.
var rpcPrefix = regexp.MustCompile(`rpc error: code = \w+ desc = `)

// session is a connection to a runtime, and the daemon if it is our own.
type session struct {
	*endpoint.Endpoint
	cfg *config.Config
	own *ownDaemon // nil if only one endpoint will do
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
	s := &session{cfg: cfg, own: &ownDaemon{cfg: cfg, version: a.version, errOut: a.err}}
	if s.Endpoint, err = s.own.connect(ctx); err != nil {
		return nil, errors.Join(err, s.own.end())
	}
	return s, nil
}

// dialDaemon connects to the daemon that runs, and starts none; useless says why
// that would be of no use.
func (a *app) dialDaemon(ctx context.Context, useless string) (*endpoint.Endpoint, error) {
	cfg, err := a.loadConfig()
	if err != nil {
		return nil, err
	}
	where := a.endpoint
	if where == "" {
		where = address(cfg)
	}
	e, err := endpoint.Dial(ctx, where)
	if a.endpoint != "" || !errors.Is(err, errdefs.ErrNotFound) && !errors.Is(err, errdefs.ErrUnavailable) {
		return e, err
	}
	if err := needRoot(where); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("no daemon runs that stays, and %s; start one with fairlead runtime: %w", useless, err)
}

// address is where the daemon of this configuration serves.
func address(cfg *config.Config) string {
	if cfg.Listen != "" {
		return cfg.Listen
	}
	return "unix://" + filepath.Join(cfg.State, "fairlead.sock")
}

// close ends the connection, and our own daemon. Pods go on.
func (s *session) close() error {
	err := s.Endpoint.Close()
	if s.own != nil {
		err = errors.Join(err, s.own.end())
	}
	return err
}

// with connects, does something and closes.
func (a *app) with(ctx context.Context, do func(*session) error) error {
	s, err := a.connect(ctx)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.close())
}

// needRoot says why a daemon can be neither reached nor started. Whether one
// serves is not for others than root to see.
func needRoot(address string) error {
	if os.Geteuid() == 0 {
		return nil
	}
	return fmt.Errorf("only root can use a daemon at %s, or start one: %w", address, errdefs.ErrPrecondition)
}
