package pod

// Metadata is what identifies a pod to its caller. A caller that asks twice
// with equal metadata means the same pod.
type Metadata struct {
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Attempt   uint32 `json:"attempt,omitempty"`
}

// Config is what the caller of RunPodSandbox asked for, in domain terms. The
// meaning of each field is that of PodSandboxConfig in k8s.io/cri-api.
type Config struct {
	Metadata     Metadata          `json:"metadata"`
	Hostname     string            `json:"hostname,omitempty"`
	LogDirectory string            `json:"logDirectory,omitempty"`
	DNS          *DNS              `json:"dns,omitempty"`
	Ports        []PortMapping     `json:"ports,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	CgroupParent string            `json:"cgroupParent,omitempty"`
	Sysctls      map[string]string `json:"sysctls,omitempty"`
	Security     Security          `json:"security"`
	Overhead     *Resources        `json:"overhead,omitempty"`
	Resources    *Resources        `json:"resources,omitempty"`
	// Restore is the folder of a checkpoint that the pod was made from; empty for
	// one that began anew.
	Restore string `json:"restore,omitempty"`
}

// HostNetwork says whether the pod uses the node's network namespace.
func (c *Config) HostNetwork() bool { return c.Security.Namespaces.Network == NamespaceNode }

// DNS is the content of a pod's resolv.conf. A nil *DNS means the node's own.
type DNS struct {
	Servers  []string `json:"servers,omitempty"`
	Searches []string `json:"searches,omitempty"`
	Options  []string `json:"options,omitempty"`
}

// PortMapping publishes a port of the pod on the node. HostPort 0 publishes
// nothing.
type PortMapping struct {
	Protocol      string `json:"protocol"` // "tcp", "udp" or "sctp"
	ContainerPort uint16 `json:"containerPort"`
	HostPort      uint16 `json:"hostPort,omitempty"`
	HostIP        string `json:"hostIP,omitempty"`
}

// ContainerMetadata identifies a container within its pod.
type ContainerMetadata struct {
	Name    string `json:"name"`
	Attempt uint32 `json:"attempt,omitempty"`
}

// ContainerConfig is what the caller of CreateContainer asked for, in domain
// terms. The meaning of each field is that of ContainerConfig in
// k8s.io/cri-api.
type ContainerConfig struct {
	Metadata    ContainerMetadata `json:"metadata"`
	Image       ImageSpec         `json:"image"`
	Process     Process           `json:"process"`
	Mounts      []Mount           `json:"mounts,omitempty"`
	Devices     []Device          `json:"devices,omitempty"`
	CDIDevices  []string          `json:"cdiDevices,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	LogPath     string            `json:"logPath,omitempty"` // relative to Config.LogDirectory
	Resources   *Resources        `json:"resources,omitempty"`
	Security    Security          `json:"security"`
	StopSignal  string            `json:"stopSignal,omitempty"` // "SIGTERM"; empty means the image's
	// Restore is the folder of a checkpoint that the process goes on from; empty
	// begins it anew.
	Restore string `json:"restore,omitempty"`
}

// ImageSpec is the image as the caller named it.
type ImageSpec struct {
	Image              string            `json:"image"`
	UserSpecifiedImage string            `json:"userSpecifiedImage,omitempty"`
	RuntimeHandler     string            `json:"runtimeHandler,omitempty"`
	Annotations        map[string]string `json:"annotations,omitempty"`
}

// Process is what runs in a container, before the image's defaults are added.
type Process struct {
	Command    []string `json:"command,omitempty"` // replaces the image's entrypoint
	Args       []string `json:"args,omitempty"`    // replaces the image's cmd
	WorkingDir string   `json:"workingDir,omitempty"`
	Env        []EnvVar `json:"env,omitempty"`
	Stdin      bool     `json:"stdin,omitempty"`
	StdinOnce  bool     `json:"stdinOnce,omitempty"`
	TTY        bool     `json:"tty,omitempty"`
}

// EnvVar is one environment variable.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Mount is a host path, or an image's content, seen in the container.
type Mount struct {
	ContainerPath     string      `json:"containerPath"`
	HostPath          string      `json:"hostPath,omitempty"`
	ReadOnly          bool        `json:"readOnly,omitempty"`
	RecursiveReadOnly bool        `json:"recursiveReadOnly,omitempty"`
	SELinuxRelabel    bool        `json:"selinuxRelabel,omitempty"`
	Propagation       Propagation `json:"propagation,omitempty"`
	UIDMappings       []IDMapping `json:"uidMappings,omitempty"`
	GIDMappings       []IDMapping `json:"gidMappings,omitempty"`
	Image             *ImageSpec  `json:"image,omitempty"`
	ImageSubPath      string      `json:"imageSubPath,omitempty"`
	Options           []string    `json:"options,omitempty"`
}

// Propagation is how mounts under a Mount travel.
type Propagation string

// The propagation modes of the CRI.
const (
	PropagationPrivate         Propagation = ""
	PropagationHostToContainer Propagation = "HostToContainer" // rslave
	PropagationBidirectional   Propagation = "Bidirectional"   // rshared
)

// Device is a host device, or a folder of devices, given to a container.
type Device struct {
	ContainerPath string `json:"containerPath"`
	HostPath      string `json:"hostPath"`
	Permissions   string `json:"permissions"` // of "rwm"
}

// IDMapping is one line of a user namespace's uid_map or gid_map.
type IDMapping struct {
	HostID      uint32 `json:"hostID"`
	ContainerID uint32 `json:"containerID"`
	Length      uint32 `json:"length"`
}
