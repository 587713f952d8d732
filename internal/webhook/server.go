package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/resident"
	"fairlead.run/internal/webhook/census"
	"fairlead.run/internal/webhook/certs"
	"fairlead.run/internal/webhook/review"
)

// Times of connections. API servers keep theirs, and send one request after the
// other.
const (
	headTime   = 5 * time.Second
	bodyTime   = 10 * time.Second
	writeTime  = 15 * time.Second
	idleTime   = 5 * time.Minute
	endTime    = 10 * time.Second
	mostHeader = 32 << 10
)

// An API server sends all its requests through one connection. The bodies of
// those that wait for their turn must not use up the room of the others: each has
// little of it, and the connection enough for all.
const (
	requestsAtOnce   = 250
	streamBuffer     = 64 << 10
	connectionBuffer = 2 * requestsAtOnce * streamBuffer
)

// Certificates are where the serving certificate comes from.
type Certificates interface {
	// Run keeps it up to date until ctx ends.
	Run(ctx context.Context) error
	// Certificate is the one to serve with.
	Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Ready says why API servers may not believe it; nil if they do.
	Ready() error
	// Expires is when it ends; zero if there is none.
	Expires() time.Time
}

// Server is one replica of the webhook.
type Server struct {
	options Options
	log     *slog.Logger
	cache   *cluster.Cache
	certs   Certificates
	clients *certs.Clients // nil for everybody
	metrics *metrics
	reviews http.Handler

	listener, health net.Listener
	ending           atomic.Bool
}

// Open makes a server and takes its addresses. It serves nothing before Run.
func Open(config *rest.Config, o Options, log *slog.Logger) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	client, err := cluster.NewClient(config)
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, log: log, cache: cluster.NewCache(client, o.caches(log))}
	if s.certs, err = o.certificates(client, log); err != nil {
		return nil, err
	}
	if o.ClientCA != "" {
		if s.clients, err = certs.NewClients(o.ClientCA, o.ClientNames, log); err != nil {
			return nil, err
		}
	}
	s.assemble(client)
	if s.listener, err = net.Listen("tcp", o.Listen); err != nil {
		return nil, fmt.Errorf("listen for API servers: %w", err)
	}
	if s.health, err = net.Listen("tcp", o.Health); err != nil {
		_ = s.listener.Close()
		return nil, fmt.Errorf("listen for probes: %w", err)
	}
	return s, nil
}

// caches are of nothing in a garden cluster, whose pods are of no interest here.
func (o Options) caches(log *slog.Logger) cluster.Options {
	c := cluster.Options{Log: log}
	if o.Garden {
		c.Only = []string{}
	}
	return c
}

func (o Options) certificates(client *cluster.Client, log *slog.Logger) (Certificates, error) {
	if o.CertDir != "" {
		return certs.NewMounted(o.CertDir, log)
	}
	return certs.NewManaged(client, o.place(), log), nil
}

// assemble makes the paths.
func (s *Server) assemble(client *cluster.Client) {
	k := newKnown(client, s.cache, s.log)
	pods := &podRules{known: k, ledger: newLedger(s.cache.Pods), legacy: s.options.Legacy, exempt: map[string]bool{s.options.Namespace: true}}
	for _, name := range s.options.Exempt {
		pods.exempt[name] = true
	}
	s.metrics = newMetrics(k, s.certs.Expires)
	census.New(s.cache).Register(&s.metrics.registry)
	i, mux := newInterceptor(s.metrics, s.log), http.NewServeMux()
	installs, shoots := installRules(client, s.cache, s.options)
	mux.Handle("/validate-shoots", i.serving("validate-shoots", shoots)) // it needs none of the caches
	rules := map[string]rule{
		"mutate-pods": pods.mutate, "validate-pods": pods.validate, "validate-templates": pods.templates,
		"validate-runtimeclasses": k.classes, "validate-policies": k.policyObjects,
	}
	maps.Copy(rules, installs)
	if s.options.Garden {
		rules = nil
	}
	for name, ask := range rules {
		mux.Handle("/"+name, i.serving(name, s.whenSynced(ask)))
	}
	s.reviews = mux
}

// whenSynced answers nothing from caches that are not full yet: a policy that was
// not read is one that does not hold.
func (s *Server) whenSynced(ask rule) rule {
	return func(ctx context.Context, r *review.Request) (review.Answer, error) {
		if !s.cache.Synced() {
			return review.Answer{}, fmt.Errorf("the caches are not synced yet: %w", errdefs.ErrUnavailable)
		}
		return ask(ctx, r)
	}
}

// Addresses are where the server listens for API servers, and for probes.
func (s *Server) Addresses() (reviews, health net.Addr) { return s.listener.Addr(), s.health.Addr() }

// Run serves until ctx ends, and then for as long as requests may still come.
func (s *Server) Run(ctx context.Context) error {
	s.log.Info("webhook begins", "address", s.listener.Addr().String(), "health", s.health.Addr().String())
	// All goes on until the drain is over. Requests that are served even then have
	// what the caches have learnt.
	base, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	group, base := errgroup.WithContext(base)
	group.Go(func() error { return s.cache.Run(base) })
	group.Go(func() error { return s.certs.Run(base) })
	group.Go(func() error { return s.settle(base) })
	if s.clients != nil {
		group.Go(func() error { return s.clients.Run(base) })
	}
	group.Go(func() error { return serve(base, s.healthServer(), s.health, false) })
	group.Go(func() error { return serve(base, s.reviewServer(), s.listener, true) })
	group.Go(func() error {
		s.drain(ctx, base)
		end()
		return nil
	})
	return group.Wait()
}

// settled is how much garbage there may be for what is in use, in percent, once the
// cluster has been read. Reading it takes the most memory; afterwards requests make
// the garbage, and to collect it as often would cost nearly a fifth of their time.
const settled = 80

// settle gives back the memory that only the reading of the cluster needed.
func (s *Server) settle(ctx context.Context) error {
	for !s.cache.Synced() {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
	if err := resident.GiveBack(); err != nil {
		s.log.Debug("some memory was not given back", "error", err)
	}
	resident.Grow(settled)
	return nil
}

// drain waits for the order to end, and then until nobody sends requests here: a
// replica that is not ready is taken off its Service, which takes a moment.
func (s *Server) drain(ctx, base context.Context) {
	select {
	case <-base.Done():
		return
	case <-ctx.Done():
	}
	s.ending.Store(true)
	s.log.Info("webhook ends", "drain", s.options.Drain.String())
	select {
	case <-base.Done():
	case <-time.After(s.options.Drain):
	}
}

// leaving sends clients elsewhere while the server ends. API servers keep a connection
// even if its replica is off the Service, and what one sends into an idle connection in
// the moment in which that is closed gets no answer. By HTTP/2 this is a GOAWAY, after
// which clients know what to send again.
func (s *Server) leaving(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.ending.Load() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

func (s *Server) reviewServer() *http.Server {
	secure := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certs.Certificate}
	if s.clients != nil {
		secure.ClientAuth, secure.VerifyConnection = tls.RequireAnyClientCert, s.clients.Verify
	}
	return &http.Server{
		Handler:           s.leaving(s.reviews),
		TLSConfig:         secure,
		ReadHeaderTimeout: headTime, ReadTimeout: bodyTime, WriteTimeout: writeTime, IdleTimeout: idleTime, MaxHeaderBytes: mostHeader,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: requestsAtOnce, MaxReceiveBufferPerStream: streamBuffer, MaxReceiveBufferPerConnection: connectionBuffer},
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// healthServer tells how it is, and what it has done, to whoever asks.
func (s *Server) healthServer() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.Ready(); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_ = s.metrics.registry.Write(w) // only the one who asks is gone
	})
	return &http.Server{Handler: mux, ReadHeaderTimeout: headTime, WriteTimeout: writeTime, IdleTimeout: idleTime, MaxHeaderBytes: mostHeader}
}

// Ready says why requests should not come here; nil if they may.
func (s *Server) Ready() error {
	if s.ending.Load() {
		return errors.New("it ends")
	}
	for _, status := range s.cache.Status() {
		if !status.Synced {
			return fmt.Errorf("%s have not been read yet: %s", status.Resource, status.Trouble)
		}
	}
	return s.certs.Ready()
}

// serve runs one HTTP server until ctx ends, and lets its requests end.
func serve(ctx context.Context, server *http.Server, l net.Listener, secure bool) error {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		last, cancel := context.WithTimeout(context.Background(), endTime)
		defer cancel()
		if server.Shutdown(last) != nil {
			_ = server.Close()
		}
	})
	var err error
	if secure {
		err = server.ServeTLS(l, "", "")
	} else {
		err = server.Serve(l)
	}
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve on %s: %w", l.Addr(), err)
}
