package join

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/agent"
	api "fairlead.run/internal/node/cluster"
	"fairlead.run/internal/node/cluster/certificates"
	"fairlead.run/internal/node/cluster/membership"
	"fairlead.run/internal/node/cluster/nodestatus"
	"fairlead.run/internal/node/cluster/pace"
	"fairlead.run/internal/node/endpoint"
	"fairlead.run/internal/node/eviction"
	"fairlead.run/internal/node/garbage"
	"fairlead.run/internal/node/images"
	"fairlead.run/internal/node/logs/links"
	"fairlead.run/internal/node/logs/rotate"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/resources"
	"fairlead.run/internal/node/server"
	"fairlead.run/internal/node/server/access"
	"fairlead.run/internal/node/server/usage"
	"fairlead.run/internal/node/server/zpages"
	"fairlead.run/internal/node/source/gather"
	"fairlead.run/internal/node/stock"
	"fairlead.run/internal/node/sysctl"
	"fairlead.run/internal/node/volume"
	"fairlead.run/internal/node/volume/survey"
	"fairlead.run/internal/telemetry"
)

// Name marks the pods of a node; see agent.Config.
const Name = "node"

// healthzAgain is when a port is tried again that was taken.
const healthzAgain = time.Second

// Config is what a Node works with. What is not said to be optional is required.
type Config struct {
	Endpoint       *endpoint.Endpoint
	Client, Events *cluster.Client // the second one for events alone
	Node           podspec.Node    // with its name and addresses
	Registration
	API
	Sysctls   sysctl.Allowed
	Stock     stock.Settings
	Resources resources.Settings
	// Static are the sources of static pods. Where their last good versions are kept
	// is the node's business.
	Static      gather.Config
	Root, State string // persistent folder, and one on a tmpfs
	// Shared is the folder that a kubelet would have, in which programs of others look
	// for the node and for pods' volumes: /var/lib/kubelet.
	Shared string
	Logs   string // folder of the logs of pods
	Log    *slog.Logger
}

// Registration is what the node says of itself when it comes, and how much and how often later.
type Registration struct {
	Labels     map[string]string
	Taints     []corev1.Taint
	ProviderID string
	// MaxImages, Lease and Report are as those of nodestatus.Facts and of cluster.Config.
	MaxImages     *int
	Lease, Report time.Duration
}

// API is how the node's own API is served.
type API struct {
	Address     string // to listen at
	Healthz     string // to listen at for /healthz alone, without TLS; empty for not at all
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	ClientCA    string // file; empty accepts no certificate
	AlwaysAllow bool   // else the API server says who may do what
	Anonymous   bool
	Served
	TLS access.TLS // without its Certificate
	// Certificates counts those of the node; nil counts none.
	Certificates *certificates.Metrics
	Metrics      []func(io.Writer) error // beside those of the node
	Health       []server.Check          // beside those of the agent
	// Flags are those that the node was started with, without secrets, for /flagz.
	Flags map[string]string
}

// Served is what of the API has to be asked for.
type Served struct {
	server.Debugging
	NodeLogs server.NodeLogs
}

// Node is a machine that is one. Make it by New.
type Node struct {
	cfg     Config
	agent   *agent.Agent
	cluster *api.Cluster
	server  *server.Server
	keeper  *resources.Keeper
	facts   facts
	sources *gather.Sources
	drivers drivers
	given   given
	told    map[string]bool // problems of manifests
	// garbage removes what nobody needs, each few minutes. DeleteUnusedImages and
	// DeleteUnusedContainers are for when the disk is needed at once.
	garbage *garbage.Collector
	goods   *stock.Stock
}

// New makes a Node. Nothing is asked of the API server before Run.
func New(ctx context.Context, cfg Config) (*Node, error) {
	n := &Node{cfg: cfg}
	if err := os.MkdirAll(cfg.Root, 0o711); err != nil {
		return nil, err
	}
	var err error
	if n.keeper, err = resources.New(ctx, resources.Config{
		Settings: cfg.Resources, Runtime: cfg.Endpoint.Runtime, Images: cfg.Endpoint.Images, Name: cfg.Node.Name, Folder: cfg.Root, Logs: n.logDir, Tell: n.tell(),
		Node: func() *corev1.Node { return n.cluster.Node() }, Log: cfg.Log,
		Elsewhere: func(name corev1.ResourceName) bool { return n.drivers.devices.Owns(name) },
	}); err != nil {
		return nil, err
	}
	has := n.keeper.Node()
	cfg.Node.Allocatable = has.Allocatable
	if n.facts, err = factsOf(cfg, has); err != nil {
		return nil, err
	}
	n.cluster = n.newCluster(cfg)
	n.facts.warn, n.facts.changed = n.Warn, n.cluster.NodeChanged
	n.newDrivers()
	home, _ := os.UserHomeDir() // without one there is nothing in it
	goods, err := stock.New(stock.Config{
		Docker:   images.DockerFilesOf(cfg.Shared, home, "/"),
		Settings: cfg.Stock, Runtime: cfg.Endpoint.Runtime, Client: cfg.Endpoint.Images, Accounts: accounts{n.cluster.Objects()}, Root: cfg.Root, Warn: n.Warn, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	n.goods, n.agent = goods, n.newAgent(cfg, goods)
	n.given = given{run: n.agent.Set, mirrors: n.cluster.Static, unread: cfg.Static.Kinds()}
	cfg.Static.Keep, cfg.Static.Static, cfg.Static.Log = filepath.Join(cfg.Root, "static"), true, cfg.Log
	if n.sources, err = gather.New(cfg.Static, n.manifests); err != nil {
		return nil, err
	}
	if n.garbage, err = goods.Collector(n.agent, cfg.Logs, n.garbageIsLeft); err != nil {
		return nil, err
	}
	if n.server, err = n.newServer(); err != nil {
		return nil, err
	}
	return n, nil
}

func (n *Node) newCluster(cfg Config) *api.Cluster {
	return api.New(api.Config{
		Client: cfg.Client, Events: cfg.Events, Said: n.said, Pods: n.given.bind, Changed: n.changed, Log: cfg.Log, Lease: cfg.Lease, Report: cfg.Report,
		Registration: membership.Registration{
			Name: cfg.Node.Name, Hostname: cfg.Node.Name, Labels: cfg.Labels, Annotations: annotations, Taints: cfg.Taints, ProviderID: cfg.ProviderID,
			Status: n.status, MachineID: n.facts.info.MachineID, SystemUUID: n.facts.info.SystemUUID, Warn: n.Warn,
		},
	})
}

func (n *Node) newAgent(cfg Config, goods *stock.Stock) *agent.Agent {
	return agent.New(agent.Config{
		Name: Name, Runtime: cfg.Endpoint.Runtime, Scheme: cfg.Endpoint.Name, Images: goods, Objects: lookup{n.cluster.Objects()}, Node: cfg.Node,
		Place: n.place, Cgroups: n.keeper.Cgroups(), Room: room{n.keeper, n.drivers.devices},
		Around:   n.around(cfg.Node.Allocatable),
		Reporter: reporter{n}, Root: cfg.Root, State: cfg.State, Logs: agent.Logs{LogDir: n.logDir, Links: links.Folder(cfg.Logs)}, Log: cfg.Log,
	})
}

// annotations are those that a node has from the start: without this one no controller
// attaches volumes to it.
var annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}

// Warn tells of what is wrong with the node. It never waits.
func (n *Node) Warn(reason, message string) {
	n.cfg.Log.Warn("something is wrong with the node", "reason", reason, "message", message)
	n.cluster.NodeEvent(corev1.EventTypeWarning, reason, message)
}

// garbageIsLeft tells why, by an event of the node as a kubelet's.
func (n *Node) garbageIsLeft(reason string, err error) {
	n.Warn(reason, err.Error()+hostpath.Advice(err))
}

// logGrows tells, by an event of the node, of a log that is not rotated.
func (n *Node) logGrows(err error) {
	n.cluster.NodeEvent(corev1.EventTypeWarning, rotate.FailedRotation, err.Error()+hostpath.Advice(err))
}

func (n *Node) newServer() (*server.Server, error) {
	gate := access.Config{
		Tokens: reviews{n.cfg.Client}, Access: reviews{n.cfg.Client}, AlwaysAllow: n.cfg.AlwaysAllow, Anonymous: n.cfg.Anonymous,
		NodeName: n.cfg.Node.Name, Log: n.cfg.Log,
	}
	if n.cfg.ClientCA != "" {
		bundle, err := access.NewBundle(n.cfg.ClientCA, func(message string) { n.Warn("ClientCANotRead", message) })
		if err != nil {
			return nil, err
		}
		gate.Clients = bundle
	}
	made, err := access.New(gate)
	if err != nil {
		return nil, err
	}
	measures, err := usage.New(usage.Config{
		NodeName: n.cfg.Node.Name, Runtime: n.cfg.Endpoint.Runtime, Images: n.cfg.Endpoint.Images, Pods: n.agent.Pods,
		Root: n.cfg.Root, Logs: n.logDir, Log: n.cfg.Log, Systems: n.systems(), Volumes: n.volumes,
	})
	if err != nil {
		return nil, err
	}
	return server.New(server.Config{
		Node: pods{n.agent}, Runtime: n.cfg.Endpoint.Runtime, Log: n.cfg.Log, Gate: made, Debugging: n.cfg.Debugging, NodeLogs: n.cfg.NodeLogs, CheckpointDir: filepath.Join(n.cfg.Shared, "checkpoints"), Usage: measures,
		Metrics: n.metrics(), Probes: n.agent.ProbeMetrics,
		Health: append(slices.Clone(n.cfg.Health), server.Check{Name: "syncloop", Check: n.agent.Healthy}), Configz: n.configuration, About: n.about(),
	})
}

// about is what the API tells of the program.
func (n *Node) about() *zpages.About {
	return &zpages.About{
		Component: "kubelet", Version: nodestatus.KubeletVersion, Started: time.Now(), Flags: n.cfg.Flags,
		Paths: []string{"/configz", "/flagz", "/healthz", "/metrics", "/pods"},
	}
}

// metrics are what the node tells beside its API.
func (n *Node) metrics() []func(io.Writer) error {
	out := []func(io.Writer) error{n.agent.Metrics, n.podMetrics(), n.goods.Metrics, n.keeper.Metrics, n.drivers.told.Metrics, n.drivers.volumes.Metrics, telemetry.Process(), version()}
	out = append(out, n.cfg.Metrics...)
	if c := n.cfg.Certificates; c != nil {
		out = append(out, c.Write)
	}
	if calls := n.cfg.Endpoint.Calls; calls != nil {
		out = append(out, calls.Write)
	}
	return out
}

// tell is how the cluster is told of the node.
func (n *Node) tell() resources.Tell {
	return resources.Tell{
		Evicted: func(p *corev1.Pod, message string, annotations map[string]string) {
			n.cluster.ContainerEvent(p, api.ContainerEvent{Kind: corev1.EventTypeWarning, Reason: eviction.Reason, Message: message, Annotations: annotations})
		},
		Node:    func(kind, reason, message string) { n.cluster.NodeEvent(kind, reason, message) },
		Changed: func() { n.cluster.NodeChanged() },
	}
}

// volumes are what those of all pods take.
func (n *Node) volumes(ctx context.Context) map[types.UID][]volume.Usage {
	out := map[types.UID][]volume.Usage{}
	for pod, has := range n.agent.Volumes(ctx, survey.Ask{}) {
		out[pod] = has.Volumes
	}
	return out
}

// systems are the cgroups that the summary shows.
func (n *Node) systems() []usage.System {
	name := n.keeper.CgroupName()
	if name == "" {
		return nil
	}
	return []usage.System{{Name: statsv1.SystemContainerPods, Cgroup: name}}
}

// Run is a node of the cluster until ctx ends. The pods go on then.
func (n *Node) Run(ctx context.Context) error {
	l, err := net.Listen("tcp", n.cfg.Address)
	if err != nil {
		return fmt.Errorf("serve the node API: %w", err)
	}
	served := n.cfg.TLS
	served.Certificate = n.cfg.Certificate
	config, err := served.Config()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	logs, err := n.cfg.Stock.Logs.Rotator(rotate.Config{Runtime: n.cfg.Endpoint.Runtime, List: n.agent.Running, Failed: n.logGrows, Log: n.cfg.Log})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	parts := []func(context.Context) error{
		logs.Run, n.garbage.Run, n.sources.Run, n.agent.Run, n.cluster.Run, n.facts.run, n.runDrivers, n.drivers.devices.Run, n.drivers.told.Run,
		func(ctx context.Context) error { return n.keeper.Run(ctx, n.agent, n.garbage) },
		func(ctx context.Context) error { return n.server.Serve(ctx, l, config) }, n.healthz,
	}
	errs := make([]error, len(parts))
	var all sync.WaitGroup
	for i, run := range parts {
		all.Go(func() {
			errs[i] = run(ctx)
			cancel() // none goes on alone
		})
	}
	all.Wait()
	n.keeper.Close()
	for i, err := range errs {
		if errors.Is(err, http.ErrServerClosed) || errors.Is(err, context.Canceled) {
			errs[i] = nil
		}
	}
	return errors.Join(append(errs, n.server.Close())...)
}

// healthz serves it, once it can: no pod needs it, so that a port that is taken ends no node.
func (n *Node) healthz(ctx context.Context) error {
	for told := false; n.cfg.Healthz != ""; told = true {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", n.cfg.Healthz)
		if err == nil {
			return n.server.ServeHealthz(ctx, l)
		}
		if !told {
			n.cfg.Log.Warn("/healthz is not served; free the port, or choose another one by --healthz-port, where 0 is none", "address", n.cfg.Healthz, "error", err)
		}
		if !pace.Sleep(ctx, healthzAgain) {
			return nil
		}
	}
	<-ctx.Done()
	return nil
}

// changed is that what pods refer to may be another.
func (n *Node) changed(pods []types.UID) { n.agent.Touch(pods...) }

func (n *Node) logDir(p *corev1.Pod) string {
	return filepath.Join(n.cfg.Logs, p.Namespace+"_"+p.Name+"_"+string(p.UID))
}

// reporter tells the cluster how pods are.
type reporter struct{ n *Node }

func (r reporter) Changed(p *corev1.Pod, s corev1.PodStatus) { r.n.cluster.Report(p, &s) }

func (r reporter) Event(p *corev1.Pod, kind, reason, message string) {
	r.n.cluster.Event(p, kind, reason, message)
}

// Warn implements agent.Warner.
func (r reporter) Warn(reason, message string) { r.n.Warn(reason, message) }

// ContainerEvent implements agent.Precise.
func (r reporter) ContainerEvent(p *corev1.Pod, e agent.ContainerEvent) {
	r.n.cluster.ContainerEvent(p, api.ContainerEvent{Path: e.Path, Kind: e.Kind, Reason: e.Reason, Message: e.Message})
}

func (r reporter) Gone(p *corev1.Pod) {
	r.n.drivers.devices.Forget(p.UID)
	r.n.cluster.Gone(p)
}

// pods are the agent's, as the node API asks for them.
type pods struct{ *agent.Agent }

func (p pods) Pod(namespace, name string, uid types.UID) (*corev1.Pod, bool) {
	for _, one := range p.Pods() {
		if one.Namespace == namespace && one.Name == name && (uid == "" || uid == one.UID) {
			return one, true
		}
	}
	return nil, false
}
