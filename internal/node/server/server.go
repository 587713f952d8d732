package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"fairlead.run/internal/node/server/zpages"
	"fairlead.run/internal/telemetry"
)

// Node is what the server needs to know of pods.
type Node interface {
	// Pods are all of the node, with their statuses. Nobody changes them.
	Pods() []*corev1.Pod
	// Pod finds one. Without a uid that of any; otherwise the pod's own or that
	// of its mirror at the API server must be the same.
	Pod(namespace, name string, uid types.UID) (*corev1.Pod, bool)
}

// Ender is what a Node may be, too: it tells at once when a container has ended.
// Without it, the runtime is asked each second while a log is followed.
type Ender interface {
	// Ended is closed when the container has ended or is gone. The context is
	// that of the one who waits.
	Ended(ctx context.Context, containerID string) <-chan struct{}
}

// Usage measures (package usage).
type Usage interface {
	Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsv1.Summary, error)
	Resource(ctx context.Context, w io.Writer) error
	Cadvisor(ctx context.Context, w io.Writer) error
}

// Gate lets requests through that are allowed (package access).
type Gate interface {
	Wrap(next http.Handler) http.Handler
}

// Check is one of health. Its error is logged and not told.
type Check struct {
	Name  string
	Check func(ctx context.Context) error
	// Log says that this is the log's own: as long as it fails nothing is logged of it, nor
	// of the checks after it.
	Log bool
}

// Config is what a Server works with. Node, Runtime and Log must be set; what
// is missing of the others answers 404; what is off answers 405 and says how to switch it on.
type Config struct {
	Node    Node
	Runtime runtimeapi.RuntimeServiceClient
	Usage   Usage
	Log     *slog.Logger
	// Gate is nil where whoever can connect may do everything.
	Gate Gate
	// Metrics write those of the agent and its parts; those of the server come
	// after them.
	Metrics []func(io.Writer) error
	// Probes writes the metrics of probes.
	Probes func(io.Writer) error
	// Health are the checks beside "ping".
	Health []Check
	// Configz is the configuration that is shown under the name kubeletconfig.
	Configz func() any
	// About is what /statusz and /flagz tell; nil serves neither.
	About *zpages.About
	// CheckpointDir is where checkpoints are written to.
	CheckpointDir string
	// NodeLogs are the logs of the node that are served.
	NodeLogs NodeLogs
	Debugging
	// Limits are how much is served at once.
	Limits Limits
}

// Debugging is what is served for who looks for a fault.
type Debugging struct {
	// Bare has no sessions, logs and commands, nor what tells how the node is set up, as of a
	// kubelet without debugging handlers.
	Bare bool
	// Profiling serves /debug/pprof.
	Profiling bool
	// Level is what /debug/flags/v changes.
	Level *slog.LevelVar
}

// NodeLogs are logs of a node.
type NodeLogs struct {
	// Folder is served with all that is in it; "" is none.
	Folder string
	// Query answers queries with that folder, and with the journal of systemd.
	Query bool
}

// Limits bound what callers can make the node do. Zero means the default.
type Limits struct {
	// Streams are sessions and follows at once; 1000.
	Streams int
	// Requests are all others at once; 200.
	Requests int
	// RequestTime is how long one of those may take; 30 s.
	RequestTime time.Duration
}

func (l *Limits) complete() error {
	if l.Streams < 0 || l.Requests < 0 || l.RequestTime < 0 {
		return errors.New("make the node API: a limit is negative")
	}
	if l.Streams == 0 {
		l.Streams = 1000
	}
	if l.Requests == 0 {
		l.Requests = 200
	}
	if l.RequestTime == 0 {
		l.RequestTime = 30 * time.Second
	}
	return nil
}

// Server is the handler of the API.
type Server struct {
	cfg      Config
	handler  http.Handler
	streams  chan struct{}
	requests chan struct{}
	registry telemetry.Registry
	counts   *counts
	slis     *slis
	nodeLogs *os.Root
}

// New makes the handler. Close it when nothing is served any more.
func New(c Config) (*Server, error) {
	if c.Node == nil || c.Runtime == nil || c.Log == nil {
		return nil, errors.New("make the node API: Config.Node, Runtime and Log must be set")
	}
	if err := c.Limits.complete(); err != nil {
		return nil, err
	}
	s := &Server{cfg: c, streams: make(chan struct{}, c.Limits.Streams), requests: make(chan struct{}, c.Limits.Requests)}
	if err := s.openNodeLogs(); err != nil {
		return nil, err
	}
	s.counts, s.slis = newCounts(&s.registry), newSLIs()
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		for _, path := range r.paths {
			mux.Handle(path, s.limited(r))
		}
	}
	s.handler = mux
	if c.Gate != nil {
		s.handler = c.Gate.Wrap(mux)
	}
	return s, nil
}

// Close releases what the server holds open.
func (s *Server) Close() error {
	if s.nodeLogs == nil {
		return nil
	}
	return s.nodeLogs.Close()
}

// route is a part of the API.
type route struct {
	name  string // for metrics; kubelets have the same
	paths []string
	kind  kind
	serve func(w http.ResponseWriter, r *http.Request) error
}

// kind says which limits hold.
type kind int

const (
	quick  kind = iota // as long as Limits.RequestTime
	slow               // its own limit
	stream             // as long as it takes; counted apart
)

func (s *Server) routes() []route {
	both := func(paths ...string) []string {
		var out []string
		for _, p := range paths {
			out = append(out, "GET "+p, "POST "+p)
		}
		return out
	}
	all := []route{
		{"pods", []string{"GET /pods", "GET /pods/{$}"}, quick, s.pods},
		{"runningpods", []string{"GET /runningpods", "GET /runningpods/{$}"}, quick, s.runningPods},
		{"metrics", []string{"GET /metrics"}, quick, s.metrics(s.ownMetrics)},
		{"metrics/slis", []string{"GET /metrics/slis"}, quick, s.metrics(s.slis.write)},
		{"healthz", []string{"GET /healthz", "GET /healthz/{name}"}, quick, s.healthz},
		{"containerLogs", []string{"GET /containerLogs/{namespace}/{pod}/{container}"}, stream, s.containerLogs},
		{"exec", both("/exec/{namespace}/{pod}/{container}", "/exec/{namespace}/{pod}/{uid}/{container}"), stream, s.exec},
		{"attach", both("/attach/{namespace}/{pod}/{container}", "/attach/{namespace}/{pod}/{uid}/{container}"), stream, s.attach},
		{"portForward", both("/portForward/{namespace}/{pod}", "/portForward/{namespace}/{pod}/{uid}"), stream, s.portForward},
		{"run", []string{"POST /run/{namespace}/{pod}/{container}", "POST /run/{namespace}/{pod}/{uid}/{container}"}, slow, s.run},
	}
	add := func(on bool, r route) {
		if on {
			all = append(all, r)
		}
	}
	c := &s.cfg
	add(c.Usage != nil, route{"stats", []string{"GET /stats/summary", "GET /stats/summary/{$}"}, quick, s.summary})
	add(c.Usage != nil, route{"metrics/resource", []string{"GET /metrics/resource"}, quick, s.metrics(func(r *http.Request, w io.Writer) error { return c.Usage.Resource(r.Context(), w) })})
	add(c.Usage != nil, route{"metrics/cadvisor", []string{"GET /metrics/cadvisor"}, quick, s.metrics(func(r *http.Request, w io.Writer) error { return c.Usage.Cadvisor(r.Context(), w) })})
	add(c.Probes != nil, route{"metrics/probes", []string{"GET /metrics/probes"}, quick, s.metrics(func(_ *http.Request, w io.Writer) error { return c.Probes(w) })})
	add(c.Configz != nil, route{"configz", []string{"GET /configz"}, quick, s.configz})
	if c.About != nil {
		all = append(all, route{"statusz", []string{"GET /statusz"}, quick, c.About.Statusz}, route{"flagz", []string{"GET /flagz"}, quick, c.About.Flagz})
	}
	add(c.CheckpointDir != "", route{"checkpoint", []string{"POST /checkpoint/{namespace}/{pod}/{container}"}, slow, s.checkpoint})
	// What can be switched on answers 405 while it is off, as with a kubelet.
	either := func(on bool, r route, off string) {
		if !on {
			r = disabled(r, off)
		}
		all = append(all, r)
	}
	either(c.NodeLogs.Folder != "", route{"logs", []string{"GET /logs/{path...}"}, stream, s.logs}, "logs endpoint is disabled: --enable-system-log-handler of the node enables it")
	either(c.Profiling, route{"debug", []string{"GET /debug/pprof/{name...}"}, stream, s.profile}, "profiling endpoint is disabled: --enable-profiling of the node enables it")
	either(c.Level != nil, route{"debug", []string{"PUT /debug/flags/v"}, quick, s.verbosity}, "flags endpoint is disabled: --enable-profiling of the node enables it")
	if c.Bare {
		all = bare(all)
	}
	return all
}

func disabled(r route, why string) route {
	r.kind, r.serve = quick, func(http.ResponseWriter, *http.Request) error { return refuse(http.StatusMethodNotAllowed, "%s", why) }
	return r
}

// bare is what is left of an API without debugging handlers.
func bare(all []route) (out []route) {
	for _, r := range all {
		switch r.name {
		case "configz", "statusz", "flagz", "checkpoint":
			continue
		case "run", "exec", "attach", "portForward", "containerLogs", "runningpods", "logs", "debug":
			r = disabled(r, "Debug endpoints are disabled: --enable-debugging-handlers of the node enables them")
		}
		out = append(out, r)
	}
	return out
}
