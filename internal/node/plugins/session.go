package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"fairlead.run/internal/errdefs"
)

// session attends to one socket.
type session struct {
	registry *Registry
	path     string
	is       identity
	gone     chan struct{} // closed when the socket is
	once     sync.Once
	done     chan struct{} // closed when nobody attends to it any more
}

const (
	// patience is how long a plugin may take to be registered.
	patience = 30 * time.Second
	// A plugin that cannot be registered is tried again, first soon and then less so.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 30 * time.Second
	// lasting is the pause from which on a failure is more than that of a plugin that has
	// just begun, or whose socket is what the one before it has left.
	lasting = 4 * firstRetry
)

func (s *session) end() { s.once.Do(func() { close(s.gone) }) }

// run registers the plugin, and takes that back once its socket is gone.
func (s *session) run(all context.Context) {
	ctx, cancel := context.WithCancel(all)
	defer cancel()
	go func() {
		select {
		case <-s.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	p, taken := s.insist(ctx)
	if !taken {
		return
	}
	<-ctx.Done()
	if all.Err() == nil {
		s.registry.cfg.Log.Info("plugin is gone", "type", p.Type, "plugin", p.Name)
		s.registry.cfg.Kinds[p.Type].Unregister(p)
	}
}

// insist registers the plugin, however often it has to try. What was taken is, also if
// the plugin could not be told.
func (s *session) insist(ctx context.Context) (p Plugin, taken bool) {
	log, last, told := s.registry.cfg.Log, "", ""
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		got, ok, err := s.register(ctx)
		if taken && (!ok || got.Type != p.Type || got.Name != p.Name) {
			s.registry.cfg.Kinds[p.Type].Unregister(p)
		}
		if p, taken = got, ok; err == nil {
			log.Info("plugin is registered", "type", p.Type, "plugin", p.Name, "endpoint", p.Endpoint)
			return p, true
		}
		text := err.Error()
		if text != last && ctx.Err() == nil {
			log.Info("cannot register a plugin, and try again", "socket", s.path, "error", err)
			last = text
		}
		if text != told && pause >= lasting && ctx.Err() == nil {
			s.registry.cfg.Warn(FailedRegistration, fmt.Sprintf("What serves %s is not taken, and is asked again: %s; see the log of its pod, or remove the socket if nothing serves it any more", s.path, text))
			told = text
		}
		select {
		case <-ctx.Done():
			return p, taken
		case <-time.After(pause):
		}
	}
}

// register asks the plugin what it is, has it taken, and tells it whether it was.
func (s *session) register(ctx context.Context) (p Plugin, taken bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+s.path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return p, false, fmt.Errorf("connect to %s: %w", s.path, err)
	}
	defer func() { _ = conn.Close() }()
	client := registerapi.NewRegistrationClient(conn)
	info, err := client.GetInfo(ctx, &registerapi.InfoRequest{})
	if err != nil {
		return p, false, fmt.Errorf("ask the plugin at %s what it is: %w", s.path, err)
	}
	p = Plugin{Type: info.GetType(), Name: info.GetName(), Endpoint: info.GetEndpoint(), Versions: info.GetSupportedVersions(), Socket: s.path}
	if p.Endpoint == "" {
		p.Endpoint = s.path
	}
	refused := s.registry.take(ctx, p)
	status := &registerapi.RegistrationStatus{PluginRegistered: refused == nil}
	if refused != nil {
		status.Error = refused.Error()
		refused = fmt.Errorf("register %s %q: %w", p.Type, p.Name, refused)
	}
	if _, err := client.NotifyRegistrationStatus(ctx, status); err != nil {
		err = fmt.Errorf("tell the plugin at %s what became of it: %w", s.path, err)
		return p, refused == nil, errors.Join(refused, err)
	}
	return p, refused == nil, refused
}

// take hands the plugin to who takes its type.
func (r *Registry) take(ctx context.Context, p Plugin) error {
	kind := r.cfg.Kinds[p.Type]
	if kind == nil {
		types := slices.Sorted(maps.Keys(r.cfg.Kinds))
		return fmt.Errorf("no plugins of type %q are taken here, only %s: %w", p.Type, strings.Join(types, ", "), errdefs.ErrUnimplemented)
	}
	if p.Name == "" {
		return fmt.Errorf("it says no name: %w", errdefs.ErrInvalidArgument)
	}
	return kind.Register(ctx, p)
}
