package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/cluster/certificates"
	"fairlead.run/internal/node/cluster/join"
	"fairlead.run/internal/node/cluster/membership"
	"fairlead.run/internal/node/cluster/nodestatus"
	"fairlead.run/internal/node/cluster/requests"
	"fairlead.run/internal/node/endpoint"
	"fairlead.run/internal/node/localnode"
	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/pulse"
	"fairlead.run/internal/node/server"
	"fairlead.run/internal/node/server/access"
	"fairlead.run/internal/node/source/gather"
	"fairlead.run/internal/node/sysctl"
	"fairlead.run/internal/threads"
)

// nodeFlags are the settings of a node, by the names that they have for a kubelet.
type nodeFlags struct {
	kubeconfig, bootstrap, certDir string
	runtime, images                string
	logs, shared                   string
	dns                            dnsFlags
	security                       securityFlags
	self                           selfFlags
	api                            apiFlags
	room                           roomFlags
	stock                          stockFlags
	static                         staticFlags
	file                           kubeletFile
}

// tellable are flags with their values, for people who look for a fault. What may be a secret is
// left out.
func tellable(flags *pflag.FlagSet) map[string]string {
	out := map[string]string{}
	flags.VisitAll(func(f *pflag.Flag) {
		out[f.Name] = f.Value.String()
		if u, err := url.Parse(f.Value.String()); err == nil && u.User != nil {
			out[f.Name] = u.Redacted()
		}
		if f.Name == urlHeaderFlag && f.Changed {
			out[f.Name] = "CLASSIFIED"
		}
	})
	return out
}

// dnsFlags say where pods ask for names.
type dnsFlags struct {
	servers        []string
	domain, resolv string
}

// securityFlags say what pods may do to the node.
type securityFlags struct {
	sysctls []string
	seccomp bool
}

// staticFlags say where static pods are written.
type staticFlags struct {
	folder string
	addressFlags
}

// config is what the flags come to.
func (f *staticFlags) config() (gather.Config, error) {
	address, err := f.address()
	if err != nil || f.folder == "" {
		return gather.Config{Address: address}, err
	}
	folder, err := absolute(f.folder)
	return gather.Config{Folder: folder, Address: address}, err
}

// selfFlags are what the node says of itself.
type selfFlags struct {
	name, provider string
	ips, taints    []string
	labels         map[string]string
	images         int
	lease, report  time.Duration
	pause          time.Duration     // of containers that crash
	oomScore       int               // of this process
	flags          map[string]string // as they are told of; see tellable
}

// add adds the flags for how much and how often a node tells of itself.
func (f *selfFlags) add(s *pflag.FlagSet) {
	s.IntVar(&f.images, "node-status-max-images", nodestatus.MaxImages, "images that the status of the node has at most, the largest ones; -1 for all")
	s.DurationVar(&f.report, "node-status-report-frequency", membership.StatusReport, "time after which the status of the node is written though nothing has changed")
	s.DurationVar(&f.pause, "max-container-restart-period", plan.LongestPause, "longest pause before a container is started again that crashes, from 1s to 5m")
	s.IntVar(&f.oomScore, "oom-score-adj", sparedScore, "by how much the kernel spares this process when memory runs out, from -1000 to 1000")
	s.DurationVar(&f.lease, "node-lease-duration", membership.LeaseDuration, "time after which the node is taken for dead that has not renewed its lease; it is renewed four times as often")
}

// check says what is wrong with them.
func (f *selfFlags) check() error {
	switch {
	case f.images < -1:
		return usageError{fmt.Errorf("--node-status-max-images is %d; -1 is for all", f.images)}
	case f.pause < time.Second || f.pause > plan.LongestPause:
		return usageError{fmt.Errorf("--max-container-restart-period is %s; it is from 1s to %s", f.pause, plan.LongestPause)}
	case f.oomScore < -1000 || f.oomScore > 1000:
		return usageError{fmt.Errorf("--oom-score-adj is %d; it is from -1000 to 1000", f.oomScore)}
	case f.report <= 0:
		return usageError{fmt.Errorf("--node-status-report-frequency is %s; it is more than 0", f.report)}
	case f.lease < time.Second || f.lease%time.Second != 0:
		return usageError{fmt.Errorf("--node-lease-duration is %s; it is whole seconds, at least one", f.lease)}
	}
	return nil
}

// apiFlags say how the node API is served.
type apiFlags struct {
	address, healthAddress      string
	port, healthPort            int
	certFile, keyFile, clientCA string
	rotate, anonymous           bool
	alwaysAllow                 bool
	shownFlags
	tls   access.TLS
	level slog.LevelVar
}

// shownFlags say what of node and containers is shown.
type shownFlags struct {
	debugging, profiling bool
	systemLogs, logQuery bool
}

// systemLogFolder is that of the machine's logs, as a kubelet has it.
const systemLogFolder = "/var/log"

func (f *apiFlags) check() error {
	if f.logQuery && !f.systemLogs {
		return usageError{errors.New("--enable-system-log-query (enableSystemLogQuery) goes with --enable-system-log-handler (enableSystemLogHandler): set both, or none")}
	}
	return nil
}

// served is what of the API has to be asked for.
func (f *apiFlags) served() join.Served {
	out := join.Served{Debugging: server.Debugging{Profiling: f.profiling, Bare: !f.debugging}}
	if f.profiling {
		out.Level = &f.level
	}
	if f.systemLogs {
		out.NodeLogs = server.NodeLogs{Folder: systemLogFolder, Query: f.logQuery}
	}
	return out
}

func (a *app) nodeCommand() *cobra.Command {
	f := nodeFlags{}
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Make this machine a node of a cluster",
		Long: "Make this machine a node of a Kubernetes cluster, as a kubelet does: register it, run the pods that are bound\n" +
			"to it, say how they are, and serve the node API for kubectl logs, exec, port-forward and top.\n\n" +
			"The runtime runs within this process unless a daemon serves already, or --container-runtime-endpoint names\n" +
			"another one, such as containerd or CRI-O. A signal ends the command and not the pods.",
		Example: "  fairlead node --kubeconfig /etc/kubernetes/kubelet.conf --client-ca-file /etc/kubernetes/pki/ca.crt",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.file.read(cmd.Flags()); err != nil {
				return err
			}
			if err := errors.Join(f.stock.check(cmd), f.self.check(), f.api.check()); err != nil {
				return err
			}
			f.self.flags = tellable(cmd.Flags())
			return a.node(cmd.Context(), &f)
		},
	}
	f.add(cmd)
	cmd.AddCommand(a.doctorCommand())
	return cmd
}

func (f *nodeFlags) add(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file of the node; with --bootstrap-kubeconfig it is made")
	s.StringVar(&f.file.path, "kubelet-config", "", "configuration file of a kubelet (KubeletConfiguration), for what no flag says; fields that this node does not have are named in a warning")
	s.StringVar(&f.bootstrap, "bootstrap-kubeconfig", "", "kubeconfig file by which a new node may ask for its certificate")
	s.StringVar(&f.certDir, "cert-dir", "/var/lib/fairlead/pki", "folder of the certificates that the node asks for")
	s.StringVar(&f.runtime, "container-runtime-endpoint", "", "socket of the CRI runtime (default that of --endpoint)")
	s.StringVar(&f.images, "image-service-endpoint", "", "socket of the CRI image service (default that of the runtime)")
	s.StringVar(&f.self.name, "hostname-override", "", "name of the node (default the host name)")
	s.StringSliceVar(&f.self.ips, "node-ip", nil, "address of the node, or one of IPv4 and one of IPv6, the main one first (default that by which it reaches the API server)")
	s.StringVar(&f.self.provider, "provider-id", "", "what a cloud calls this machine")
	s.StringToStringVar(&f.self.labels, "node-labels", nil, "labels of the node when it is registered")
	s.StringSliceVar(&f.self.taints, "register-with-taints", nil, "taints of the node when it is registered: KEY=VALUE:EFFECT")
	f.self.add(s)
	s.StringVar(&f.api.address, "address", "0.0.0.0", "address to serve the node API at")
	s.IntVar(&f.api.port, "port", 10250, "port to serve the node API at")
	s.IntVar(&f.api.healthPort, "healthz-port", 10248, "port to serve /healthz at to everybody who can reach it, which is this machine; 0 for not at all")
	s.StringVar(&f.api.healthAddress, "healthz-bind-address", "127.0.0.1", "address to serve that at")
	s.StringVar(&f.api.certFile, "tls-cert-file", "", "certificate of the node API (default a certificate of the node's own making)")
	s.StringVar(&f.api.keyFile, "tls-private-key-file", "", "key of that certificate")
	s.BoolVar(&f.api.rotate, "rotate-server-certificates", false, "ask the cluster for the certificate of the node API, and renew it")
	s.StringVar(&f.api.clientCA, "client-ca-file", "", "authority of the clients of the node API, such as the API server")
	s.BoolVar(&f.api.anonymous, "anonymous-auth", false, "let requests without certificate or token ask the node API, as system:anonymous")
	s.BoolVar(&f.api.alwaysAllow, "always-allow", false, "let whoever is known do everything with the node API, and do not ask the API server")
	s.BoolVar(&f.api.debugging, "enable-debugging-handlers", true, "serve sessions, logs of containers and commands with the node API; without, kubectl logs, exec, attach, cp and port-forward do not work")
	s.BoolVar(&f.api.profiling, "enable-profiling", false, "serve profiles of this process with the node API, and let it say how much is logged")
	s.BoolVar(&f.api.systemLogs, "enable-system-log-handler", false, "serve the files in "+systemLogFolder+" with the node API")
	s.BoolVar(&f.api.logQuery, "enable-system-log-query", false, "have it answer queries for the logs of services, too, with the journal or these files")
	s.StringVar(&f.api.tls.MinVersion, "tls-min-version", "", "least version of TLS of the node API: VersionTLS12 or VersionTLS13 (default VersionTLS12)")
	s.StringSliceVar(&f.api.tls.CipherSuites, "tls-cipher-suites", nil, "cipher suites of TLS 1.2 of the node API (default those that Go takes for safe)")
	s.StringSliceVar(&f.dns.servers, "cluster-dns", nil, "addresses of the DNS of the cluster")
	s.StringVar(&f.dns.domain, "cluster-domain", "cluster.local", "domain of the cluster")
	s.StringVar(&f.dns.resolv, "resolv-conf", nodeResolvConf, "file that says where pods ask for names that are not the cluster's; in the place of a stub of systemd-resolved they ask whom it asks. Empty for nowhere")
	s.StringVar(&f.logs, "pod-logs-dir", "/var/log/pods", "folder of the logs of pods")
	s.StringVar(&f.shared, "root-dir", "/var/lib/kubelet", "folder that drivers of volumes and devices share with the node; most are set up for the default")
	f.room.add(cmd)
	s.BoolVar(&f.security.seccomp, "seccomp-default", true, "give containers without a seccomp profile that of their handler; else they have none")
	s.StringSliceVar(&f.security.sysctls, "allowed-unsafe-sysctls", nil, "kernel parameters that pods may set though they may harm others, such as net.core.somaxconn or kernel.msg*")
	s.StringVar(&f.static.folder, "pod-manifest-path", "", "folder of the manifests of static pods, or a file, which run without the API server, too")
	f.static.add(cmd)
	f.stock.add(cmd)
}

// node runs until ctx ends.
func (a *app) node(ctx context.Context, f *nodeFlags) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("only root can run pods: %w", errdefs.ErrPrecondition)
	}
	if f.kubeconfig == "" {
		return usageError{errors.New("--kubeconfig is missing: it says where the API server is, and who this node is")}
	}
	if f.runtime != "" {
		a.endpoint = f.runtime
	}
	spare(a.err, ownScore, f.self.oomScore)
	out := &pulse.Writer{To: a.err}
	log := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: &f.api.level}))
	if len(f.file.ignored) > 0 {
		log.Warn("this node does not have fields of --kubelet-config, which say nothing", "file", f.file.path, "fields", strings.Join(f.file.ignored, " "))
	}
	s, err := a.patiently(ctx, log)
	if err != nil {
		return err
	}
	do := func() error {
		if f.images != "" && f.images != a.endpoint {
			other, err := patiently(ctx, log, func() (*endpoint.Endpoint, error) { return endpoint.DialImages(ctx, f.images) })
			if err != nil {
				return err
			}
			defer func() { _ = other.Close() }()
			s.UseImages(other.Conn())
		}
		return f.run(ctx, s, log, server.Check{Name: "log", Check: out.Healthy, Log: true})
	}
	return errors.Join(do(), s.close())
}

// patiently connects to a runtime that may not be there yet: agent and runtime are
// started at the same time when a machine is.
func (a *app) patiently(ctx context.Context, log *slog.Logger) (*session, error) {
	if a.endpoint == "" {
		return a.connect(ctx)
	}
	return patiently(ctx, log, func() (*session, error) { return a.connect(ctx) })
}

// patiently waits for a service that is not there yet. One of another CRI is not waited for.
func patiently[T any](ctx context.Context, log *slog.Logger, connect func() (T, error)) (T, error) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
		s, err := connect()
		if !errors.Is(err, errdefs.ErrUnavailable) && !errors.Is(err, errdefs.ErrNotFound) {
			return s, err
		}
		log.Warn("the runtime does not answer, and is asked again", "error", err, "again", pause.String())
		select {
		case <-ctx.Done():
			return s, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// agentThreads are more than a node agent was seen to need under 50 pods that
// come and go; see docs/design/0032-process-ids.md.
const agentThreads = 48

func (f *nodeFlags) run(ctx context.Context, s *session, log *slog.Logger, health server.Check) error {
	if err := threads.Reserve(agentThreads); err != nil {
		return fmt.Errorf("start the node agent: %w", err)
	}
	node := localnode.Gather(s.cfg.Root)
	if err := f.room.shareSwap(&node); err != nil {
		return err
	}
	if f.self.name != "" {
		node.Name = f.self.name
	}
	node.Name = strings.ToLower(node.Name)
	node.SeccompUnconfined = !f.security.seccomp
	if err := f.dns.set(&node); err != nil {
		return err
	}
	if err := f.bootstrapped(ctx, node.Name, log); err != nil {
		return err
	}
	asked := requests.New()
	client, events, err := f.clients(asked)
	if err != nil {
		return err
	}
	ips, err := f.addresses(client.Host())
	if err != nil {
		return err
	}
	node.IPs, node.LongestPause = podspec.Fixed(ips), f.self.pause
	cfg := join.Config{
		Endpoint: s.Endpoint, Client: client, Events: events, Node: node, Root: s.cfg.Root, State: s.cfg.State, Logs: f.logs, Log: log,
		Registration: join.Registration{Labels: f.self.labels, ProviderID: f.self.provider, MaxImages: &f.self.images, Lease: f.self.lease, Report: f.self.report},
		API: join.API{
			Address: net.JoinHostPort(f.api.address, fmt.Sprint(f.api.port)), ClientCA: f.api.clientCA, AlwaysAllow: f.api.alwaysAllow, Anonymous: f.api.anonymous, Served: f.api.served(), TLS: f.api.tls,
			Healthz: f.api.healthz(), Health: []server.Check{health}, Flags: f.self.flags, Certificates: certificates.NewMetrics(), Metrics: []func(io.Writer) error{asked.Write},
		},
		Stock: f.stock.Settings,
	}
	if cfg.Shared, err = absolute(f.shared); err != nil {
		return err
	}
	if cfg.Resources, err = f.room.settings(s.cfg); err != nil {
		return err
	}
	if cfg.Static, err = f.static.config(); err != nil {
		return err
	}
	if cfg.Taints, err = parseTaints(f.self.taints); err != nil {
		return err
	}
	if cfg.Sysctls, err = sysctl.New(f.security.sysctls); err != nil {
		return usageError{fmt.Errorf("--allowed-unsafe-sysctls: %w", err)}
	}
	var n *join.Node // when something is to be told
	warn := func(reason, message string) { n.Warn(reason, message) }
	keep, err := f.serving(&cfg, warn, log)
	if err != nil {
		return err
	}
	if n, err = join.New(ctx, cfg); err != nil {
		return err
	}
	asker := f.asker("", &cfg, warn, log)
	if f.bootstrap != "" {
		asker.Begin = certificates.Bootstrap{With: f.bootstrap}.Client
	}
	own, err := certificates.KeepClient(f.kubeconfig, asker, func(message string) { warn("ClientCertificateEnds", message) })
	if err != nil {
		return err
	}
	return together(ctx, append(keep, own, n.Run)...)
}

// asker is the node, when it asks for a certificate of that name.
func (f *nodeFlags) asker(name string, cfg *join.Config, warn func(reason, message string), log *slog.Logger) certificates.Asker {
	own := func() (*cluster.Client, error) { return cfg.Client, nil }
	return certificates.Asker{Node: cfg.Node.Name, Folder: f.folder(name), Client: own, Warn: warn, Metrics: cfg.Certificates, Log: log}
}

// together runs parts until ctx ends or one does.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(parts))
	var all sync.WaitGroup
	for i, run := range parts {
		all.Go(func() {
			errs[i] = run(ctx)
			cancel()
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// folder is where a certificate of that name is kept.
func (f *nodeFlags) folder(name string) certificates.Folder {
	return certificates.Folder{Dir: f.certDir, Name: name}
}

func (f *nodeFlags) bootstrapped(ctx context.Context, node string, log *slog.Logger) error {
	if f.bootstrap == "" {
		return nil
	}
	b := certificates.Bootstrap{Kubeconfig: f.kubeconfig, With: f.bootstrap, Node: node, Folder: f.folder("fairlead-client"), Log: log}
	return b.Do(ctx)
}

// clients are one for everything, and one for events, which have limits of their own. Requests of
// both are counted.
func (f *nodeFlags) clients(asked *requests.Counter) (client, events *cluster.Client, err error) {
	config, err := cluster.Config(f.kubeconfig, "")
	if err != nil {
		return nil, nil, err
	}
	config.QPS, config.Burst = 100, 200
	config.Wrap(asked.Over)
	if client, err = cluster.NewClient(config); err != nil {
		return nil, nil, err
	}
	events, err = cluster.NewClient(config)
	return client, events, err
}

// nodeResolvConf is what localnode reads anyway.
const nodeResolvConf = "/etc/resolv.conf"

// set has pods ask there.
func (f *dnsFlags) set(node *podspec.Node) (err error) {
	node.ClusterDNS, node.ClusterDomain = f.servers, f.domain
	if f.resolv == nodeResolvConf {
		return nil
	}
	if node.DNS, err = localnode.DNS(f.resolv); err != nil {
		return usageError{fmt.Errorf("--resolv-conf: %w", err)}
	}
	return nil
}

// healthz is where that is served alone.
func (f *apiFlags) healthz() string {
	if f.healthPort == 0 {
		return ""
	}
	return net.JoinHostPort(f.healthAddress, fmt.Sprint(f.healthPort))
}

// given are the addresses that were given, in their usual form.
func (f *selfFlags) given() ([]string, error) {
	var out []string
	var first netip.Addr
	for _, text := range f.ips {
		ip, err := netip.ParseAddr(strings.TrimSpace(text))
		ip = ip.Unmap()
		switch {
		case err != nil:
			return nil, usageError{fmt.Errorf("--node-ip: %w", err)}
		case ip.IsUnspecified() || ip.IsLoopback() || ip.IsMulticast() || ip.IsLinkLocalUnicast():
			return nil, usageError{fmt.Errorf("--node-ip: nobody else reaches this node at %s; give an address of one of its interfaces", ip)}
		case len(out) == 2 || first.IsValid() && first.Is4() == ip.Is4():
			return nil, usageError{fmt.Errorf("--node-ip: %s is one too many; a node has one address, or one of IPv4 and one of IPv6", ip)}
		}
		first, out = ip, append(out, ip.String())
	}
	return out, nil
}

func (f *nodeFlags) addresses(server string) ([]string, error) {
	if given, err := f.self.given(); err != nil || len(given) > 0 {
		return given, err
	}
	ip, err := nodestatus.DefaultIP(server)
	if err != nil {
		return nil, fmt.Errorf("find the address of this node, which --node-ip can give: %w", err)
	}
	return []string{ip.String()}, nil
}

// serving finds the certificate of the node API, and returns what keeps it.
func (f *nodeFlags) serving(cfg *join.Config, warn func(reason, message string), log *slog.Logger) (keep []func(context.Context) error, err error) {
	var ips []net.IP
	for _, ip := range cfg.Node.IPs() {
		ips = append(ips, net.ParseIP(ip))
	}
	names := []string{cfg.Node.Name}
	switch {
	case f.api.certFile != "":
		c, err := certificates.NewFiles(f.asker("", cfg, warn, log), f.api.certFile, f.api.keyFile)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert-file: %w", err)
		}
		cfg.Certificate = c.GetCertificate
	case f.api.rotate:
		m := certificates.ForServing(f.asker("fairlead-server", cfg, warn, log), func() ([]string, []net.IP) { return names, ips })
		cfg.Certificate, keep = m.GetCertificate, append(keep, m.Run)
	default:
		c, err := certificates.NewSelf(f.asker("fairlead-self", cfg, warn, log), names, ips)
		if err != nil {
			return nil, fmt.Errorf("make a certificate in %s: %w", filepath.Clean(f.certDir), err)
		}
		cfg.Certificate = c.GetCertificate
	}
	return keep, nil
}

// parseTaints reads KEY=VALUE:EFFECT and KEY:EFFECT.
func parseTaints(list []string) ([]corev1.Taint, error) {
	var out []corev1.Taint
	for _, text := range list {
		left, effect, ok := strings.Cut(text, ":")
		key, value, _ := strings.Cut(left, "=")
		t := corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			ok = false
		}
		if !ok || key == "" {
			return nil, usageError{fmt.Errorf("--register-with-taints: %q is not KEY=VALUE:EFFECT with an effect of NoSchedule, PreferNoSchedule or NoExecute", text)}
		}
		out = append(out, t)
	}
	return out, nil
}
