package criserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// MaxMessage is the size in bytes of the largest request or answer.
const MaxMessage = 16 << 20

// stopGrace is how long calls in flight may take once the server was told to end.
const stopGrace = 2 * time.Second

// Config is what a Server works with. All ports are required.
type Config struct {
	Pods       Pods
	Containers Containers
	Handlers   Handlers
	Network    Network
	Images     Images
	Streams    Streams
	Stats      Stats
	Events     Events
	Log        *slog.Logger
	Version    string // of Fairlead, "1.2.3"
	// SystemdCgroups says that cgroup parents are systemd slices.
	SystemdCgroups bool
	// Ready is closed once pods can be asked about; nil means at once. Until
	// then only calls that need no pod are answered, the others wait.
	Ready <-chan struct{}
	// Settings is the configuration in effect; its JSON is part of the verbose
	// answer of Status.
	Settings any
	// Details adds to that answer: a name to a value that can be JSON.
	Details func(context.Context) map[string]any
	// Register adds services beside the CRI; nil adds none.
	Register func(grpc.ServiceRegistrar)
}

func (c *Config) validate() error {
	for _, need := range []struct {
		name    string
		missing bool
	}{
		{"Pods", c.Pods == nil},
		{"Containers", c.Containers == nil},
		{"Handlers", c.Handlers == nil},
		{"Network", c.Network == nil},
		{"Images", c.Images == nil},
		{"Streams", c.Streams == nil},
		{"Stats", c.Stats == nil},
		{"Events", c.Events == nil},
		{"Log", c.Log == nil},
		{"Version", c.Version == ""},
	} {
		if need.missing {
			return fmt.Errorf("make the CRI server: Config.%s is not set", need.name)
		}
	}
	return nil
}

// Server answers CRI calls: through a socket by Serve, and of this process by
// Direct.
type Server struct {
	cri.UnimplementedRuntimeServiceServer
	cri.UnimplementedImageServiceServer
	cfg Config
	log *slog.Logger
	now func() time.Time
	// ending is closed when the server is told to end, for calls that go on.
	ending chan struct{}
}

// New makes a server.
func New(c Config) (*Server, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Ready == nil {
		ready := make(chan struct{})
		close(ready)
		c.Ready = ready
	}
	return &Server{cfg: c, log: c.Log, now: time.Now, ending: make(chan struct{})}, nil
}

func (s *Server) unary() []grpc.UnaryServerInterceptor {
	return []grpc.UnaryServerInterceptor{s.trace, s.observe, s.encodeErrors, s.recoverPanics, s.inTime, s.awaitReady}
}

func (s *Server) streams() []grpc.StreamServerInterceptor {
	return []grpc.StreamServerInterceptor{s.encodeStreamErrors, s.recoverStreamPanics, s.awaitReadyStream}
}

func (s *Server) register(r grpc.ServiceRegistrar) {
	cri.RegisterRuntimeServiceServer(r, s)
	cri.RegisterImageServiceServer(r, s)
	if s.cfg.Register != nil {
		s.cfg.Register(r)
	}
}

// Serve answers calls on l until ctx ends. Calls in flight may then finish for
// two seconds. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	g := grpc.NewServer(
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.MaxSendMsgSize(MaxMessage),
		grpc.ChainUnaryInterceptor(s.unary()...),
		grpc.ChainStreamInterceptor(s.streams()...),
	)
	s.register(g)

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		close(s.ending)
		force := time.AfterFunc(stopGrace, g.Stop)
		defer force.Stop()
		g.GracefulStop()
	}()
	err := g.Serve(l)
	if ctx.Err() == nil { // nobody asked for the end
		g.Stop()
		return fmt.Errorf("serve CRI calls on %s: %w", l.Addr(), err)
	}
	<-ended
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve CRI calls on %s: %w", l.Addr(), err)
	}
	return nil
}
