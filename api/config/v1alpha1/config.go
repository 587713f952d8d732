package v1alpha1

import "time"

// Version is the value of the key "version" that this package reads.
const Version = 1

// Config is the content of /etc/fairlead/config.toml and /etc/fairlead/conf.d.
//
// Larger than other structs: it has one field for each table of the file.
type Config struct {
	Version        int                `toml:"version" doc:"Version of this format. Only 1 exists."`
	Root           string             `toml:"root" flag:"root" doc:"Directory of what outlives a reboot: images, writable layers, the ledger of network attachments."`
	State          string             `toml:"state" flag:"state" doc:"Directory of what a boot does not outlive: the record of pods, sockets, bundles. Best on a tmpfs."`
	Listen         string             `toml:"listen" flag:"listen" doc:"Socket of the CRI, as unix:///path or a path." zero:"fairlead.sock in the state directory"`
	DefaultHandler string             `toml:"default_handler" flag:"default-handler" doc:"Runtime handler of pods that name none." zero:"crun if it works here, else runc, else the first that works"`
	Handlers       map[string]Handler `toml:"handlers" doc:"Runtime handlers, one table for each. The name is what RuntimeClass.handler says: a DNS label. A name may be in one file only. With no table at all, crun, runc and runsc are looked for on PATH."`
	Cgroup         Cgroup             `toml:"cgroup" doc:"Control groups."`
	Network        Network            `toml:"network" doc:"Pod network. As long as conf_dir holds a CNI configuration, that is used; otherwise the built-in bridge."`
	Images         Images             `toml:"images" doc:"Image pulls."`
	Streaming      Streaming          `toml:"streaming" doc:"Server of exec, attach and port-forward streams."`
	Containers     Containers         `toml:"containers" doc:"Defaults and bounds of all containers."`
	Metrics        Metrics            `toml:"metrics" doc:"Metrics of the daemon itself, for Prometheus."`
	Tracing        Tracing            `toml:"tracing" doc:"Spans of operations on pods and containers and of the pulls of images, for OpenTelemetry."`
	Stats          Stats              `toml:"stats" doc:"What is measured of pods and containers."`
	Checkpoints    Checkpoints        `toml:"checkpoints" doc:"What running containers are at, in archives."`
	NRI            NRI                `toml:"nri" doc:"Plugins that take part in the life of pods and containers by the Node Resource Interface."`
	Monitor        Monitor            `toml:"monitor" doc:"The process that is the parent of all containers."`
	Log            Log                `toml:"log" doc:"What the daemon itself logs, on standard error."`

	origins map[string]place
}

// Handler is one runtime handler.
type Handler struct {
	Type string `toml:"type" doc:"Kind of the handler. \"oci\": a program with the command line of runc. \"shim\": a containerd shim." zero:"oci"`
	Path string `toml:"path" doc:"The program: an absolute path, or a name to be looked for on PATH." zero:"the name of the handler; of a shim, what follows from runtime_type"`

	// Of OCI runtimes.
	Args       []string `toml:"args" doc:"Arguments before the subcommand, for example [\"--debug\"]. --root, --log, --log-format and --systemd-cgroup are Fairlead's to set."`
	Root       string   `toml:"root" doc:"Directory of the program's own state." zero:"runtimes/NAME in the state directory"`
	MinVersion string   `toml:"min_version" doc:"The oldest version of the program that may start pods, for example \"1.2.8\". An older one fails, and its pods run on. [security.md](security.md) has why this may be wanted." zero:"any"`

	// Of shims.
	RuntimeType string         `toml:"runtime_type" doc:"Of a shim: its name, as in \"io.containerd.runc.v2\", whose program is containerd-shim-runc-v2."`
	ConfigPath  string         `toml:"config_path" doc:"Of a shim other than runc's: the file that it is told to read its configuration from."`
	Options     map[string]any `toml:"options" doc:"Of a shim: what it is told, by the names that containerd has for it. Those of runc's are checked. Others get them as TOML, unless config_path is set; TypeUrl is the type of that."`
	Snapshotter string         `toml:"snapshotter" doc:"Of a shim: who makes root file systems. There is only \"overlayfs\"." zero:"overlayfs"`

	PodAnnotations               []string `toml:"pod_annotations" doc:"Pod annotations that the runtime gets to see: names, or prefixes that end in \"*\". All others are kept from it."`
	ContainerAnnotations         []string `toml:"container_annotations" doc:"As pod_annotations, of containers."`
	PrivilegedWithoutHostDevices bool     `toml:"privileged_without_host_devices" doc:"Privileged containers get no host devices but those they ask for."`
}

// Cgroup is about control groups.
type Cgroup struct {
	Driver string `toml:"driver" flag:"cgroup-driver" doc:"\"cgroupfs\": directories made directly. \"systemd\": scopes and slices made by systemd; the kubelet has to say the same." zero:"systemd where it runs and the host has cgroup v2 alone, else cgroupfs"`
}

// Network is the pod network.
type Network struct {
	ConfDir     string   `toml:"conf_dir" doc:"Directory of CNI configuration lists."`
	BinDirs     []string `toml:"bin_dirs" doc:"Directories of CNI plugins, searched in this order."`
	Bridge      string   `toml:"bridge" doc:"Interface name of the built-in bridge."`
	IPv4        string   `toml:"ipv4" doc:"IPv4 range of the built-in bridge, /8 to /29, for example \"10.213.0.0/16\"." zero:"the range that a cluster gives to this node, else the first of some ranges that no route of the host uses"`
	IPv6        string   `toml:"ipv6" doc:"IPv6 range of the built-in bridge, /48 to /120." zero:"as ipv4"`
	DisableIPv6 bool     `toml:"disable_ipv6" doc:"Pods of the built-in bridge get IPv4 alone."`
	MTU         int      `toml:"mtu" doc:"MTU of pod interfaces of the built-in bridge, 1280 to 65535." zero:"that of the default route"`
}

// Images is about image pulls.
type Images struct {
	CertsDirs              []string `toml:"certs_dirs" doc:"Folders of hosts.toml trees, as containerd has them (mirrors, certificates). The first that exists counts."`
	MaxConcurrentDownloads int      `toml:"max_concurrent_downloads" doc:"Layers fetched at once, over all pulls, 1 to 64."`
	StallTimeout           Duration `toml:"stall_timeout" doc:"A pull that gets no byte for this long is given up. One that is slow is not."`
	MaxLayerBytes          int64    `toml:"max_layer_bytes" doc:"Size of one layer in bytes, compressed and unpacked, above which an image is refused. Whatever this says, the last twentieth of the disk is left free."`
	MaxLayerEntries        int64    `toml:"max_layer_entries" doc:"Files, folders and links that one layer makes, above which an image is refused."`
	Pinned                 []string `toml:"pinned" doc:"Images that the kubelet's image collection is to leave alone, by any of their names: whole ones, or beginnings with a * behind, as in \"registry.example.com/infra/*\". Who asks for their removal gets it."`
}

// Streaming is the server of exec, attach and port-forward streams.
type Streaming struct {
	Address     string   `toml:"address" doc:"Host and port it listens on. Port 0 takes a free one. The kubelet has to reach it; nobody else should, as nothing is encrypted or asked for but the address of a stream. The log warns of one that is not on the loopback."`
	IdleTimeout Duration `toml:"idle_timeout" doc:"A stream on which no data moves for this long is closed, even if its client still sends pings."`
	TokenTTL    Duration `toml:"token_ttl" doc:"How long the address of a stream is good for. It works once."`
}

// Containers holds defaults and bounds of all containers.
type Containers struct {
	Rlimits     map[string]Rlimit `toml:"rlimits" doc:"Resource limits of processes, by the names of getrlimit(2) in lower case without RLIMIT_: nofile, nproc, core, ... Those not named are inherited from the daemon."`
	CDISpecDirs []string          `toml:"cdi_spec_dirs" doc:"Folders of files that describe devices by the Container Device Interface. A device in a later one hides that of the same name in an earlier one. They are read when a container asks for such a device."`
	MaxLogLine  int               `toml:"max_log_line" doc:"Bytes of a log line before it is split, 256 to 24576."`
}

// Rlimit is one resource limit.
type Rlimit struct {
	Soft Limit `toml:"soft" doc:"The limit that holds, a number or \"unlimited\"."`
	Hard Limit `toml:"hard" doc:"What the process may raise it to, a number or \"unlimited\"."`
}

// Metrics is about metrics of the daemon itself.
type Metrics struct {
	Address string `toml:"address" flag:"metrics-address" doc:"Host and port where /metrics is told, for example \"127.0.0.1:9470\". Whoever reaches it may read it; the log warns of one that is not on the loopback." zero:"nowhere"`
}

// Tracing is about spans.
type Tracing struct {
	Endpoint string `toml:"endpoint" doc:"Host and port of a collector of OTLP over gRPC, for example \"127.0.0.1:4317\". Nothing is encrypted on the way there." zero:"no spans are made"`
}

// Stats is about what is measured of pods and containers.
type Stats struct {
	Metrics []string `toml:"metrics" doc:"Groups of cAdvisor's metrics that a kubelet gets, which makes them fewer on nodes with many containers: cpu, disk, hugetlb, life, memory, network, pressure, process, spec."`
}

// Checkpoints is about checkpoints.
type Checkpoints struct {
	Restore bool `toml:"restore" doc:"Pods may be restored from checkpoints. Whoever writes a checkpoint decides what its processes do and as whom they run, whatever the pod says."`
}

// NRI is about plugins of the Node Resource Interface.
type NRI struct {
	Disable             bool     `toml:"disable" doc:"No plugin is started, and none can connect."`
	Socket              string   `toml:"socket" doc:"Socket where plugins connect: an absolute path. Where another runtime serves one already, that stays." zero:"/var/run/nri/nri.sock, or nri.sock in a state directory other than the default one"`
	PluginDir           string   `toml:"plugin_dir" doc:"Folder of plugins that the daemon starts itself, named by two digits, for their order, and a name: 10-example."`
	PluginConfigDir     string   `toml:"plugin_config_dir" doc:"Folder of what these plugins are given as their configuration: 10-example.conf or example.conf."`
	RegistrationTimeout Duration `toml:"registration_timeout" doc:"How long a plugin that has connected may take to register."`
	RequestTimeout      Duration `toml:"request_timeout" doc:"How long a plugin may take to answer. One that takes longer is disconnected, unless it asked to be kept, and the request goes on without it, unless it asked for the contrary."`
}

// Monitor is about fairlead-monitor.
type Monitor struct {
	Path string `toml:"path" flag:"monitor" doc:"The program fairlead-monitor." zero:"beside the fairlead program, else on PATH"`
}

// Log is what the daemon logs.
type Log struct {
	Level  string `toml:"level" flag:"log-level" doc:"Least level that is logged: debug, info, warn or error."`
	Format string `toml:"format" flag:"log-format" doc:"\"text\" or \"json\"."`
}

// Default is the configuration of a host that has no file.
func Default() *Config {
	return &Config{
		Version: Version,
		Root:    "/var/lib/fairlead",
		State:   "/run/fairlead",
		Network: Network{
			ConfDir: "/etc/cni/net.d",
			BinDirs: []string{"/opt/cni/bin", "/usr/lib/cni"},
			Bridge:  "fairlead0",
		},
		Images: Images{
			CertsDirs:              []string{"/etc/fairlead/certs.d", "/etc/containerd/certs.d"},
			MaxConcurrentDownloads: 6,
			StallTimeout:           Duration{5 * time.Minute},
			MaxLayerBytes:          256 << 30,
			MaxLayerEntries:        2_000_000,
		},
		Streaming: Streaming{
			Address:     "127.0.0.1:0",
			IdleTimeout: Duration{4 * time.Hour},
			TokenTTL:    Duration{time.Minute},
		},
		Containers: Containers{MaxLogLine: 16 << 10, CDISpecDirs: []string{"/etc/cdi", "/var/run/cdi"}},
		Stats:      Stats{Metrics: MetricGroups()},
		NRI: NRI{
			PluginDir:           "/opt/nri/plugins",
			PluginConfigDir:     "/etc/nri/conf.d",
			RegistrationTimeout: Duration{5 * time.Second},
			RequestTimeout:      Duration{5 * time.Second},
		},
		Log: Log{Level: "info", Format: "text"},
	}
}
