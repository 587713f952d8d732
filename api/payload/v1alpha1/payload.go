package v1alpha1

// KindPayload is the kind of a RuntimePayload.
const KindPayload = "RuntimePayload"

// RuntimePayload is one release of one container runtime, for one or several
// architectures.
type RuntimePayload struct {
	// APIVersion and Kind are those of this package.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Type is the type of the ContainerRuntime that it serves: a DNS label.
	Type string `json:"type"`
	// Version names the folder on the node, so that releases stand side by side.
	Version string `json:"version"`
	// OS is linux.
	OS string `json:"os"`
	// Architectures are those that the payload has files for, as in GOARCH.
	Architectures []string `json:"architectures"`
	// Files are what is put into the folder of the version.
	Files []File `json:"files"`
	// Configs are files that depend on where the payload ends up.
	Configs []Config `json:"configs,omitempty"`
	// Handlers are what the runtime is called by the CRI.
	Handlers []Handler `json:"handlers"`
	// Checks are commands that have to succeed on the node before the runtime
	// counts as installed.
	Checks []Check `json:"checks,omitempty"`
	// Devices have to be there on the node, such as /dev/kvm.
	Devices []string `json:"devices,omitempty"`
	// Overhead is that of a pod, by resource, unless a handler has its own.
	Overhead map[string]string `json:"overhead,omitempty"`
}

// File is a regular file of a payload.
type File struct {
	// Path is where it is put, below the folder of the version.
	Path string `json:"path"`
	// Source is where it is in the payload, if that is not Path. Files of several
	// architectures have the same Path and differ in this.
	Source string `json:"source,omitempty"`
	// Arch is the architecture that it is for; without one it is for all.
	Arch string `json:"arch,omitempty"`
	// Mode is octal, as 0755.
	Mode string `json:"mode"`
	// Size is in bytes.
	Size int64 `json:"size"`
	// SHA256 is of the content, 64 lower case hexadecimal digits.
	SHA256 string `json:"sha256"`
}

// Config is a small text file with placeholders. It is put into a folder named by
// its content, beside the versions, so that a change of it can be taken back.
type Config struct {
	// Path is below ConfigDir.
	Path string `json:"path"`
	// Content may have PayloadDir and ConfigDir in it.
	Content string `json:"content"`
}

// Handler is one handler of a runtime.
type Handler struct {
	// Name is what a RuntimeClass has as its handler: a DNS label.
	Name string `json:"name"`
	// Containerd says how containerd runs it; without, it cannot.
	Containerd *ContainerdHandler `json:"containerd,omitempty"`
	// CRIO says how CRI-O runs it; without, it cannot.
	CRIO *CRIOHandler `json:"crio,omitempty"`
	// Overhead is that of a pod on this handler, by resource.
	Overhead map[string]string `json:"overhead,omitempty"`
}

// ContainerdHandler are the keys of a runtime in containerd's configuration.
type ContainerdHandler struct {
	// RuntimeType is that of the shim, such as io.containerd.runsc.v1.
	RuntimeType string `json:"runtimeType"`
	// MinVersion is the oldest containerd that the shim works with, as 1.7.
	MinVersion string `json:"minVersion,omitempty"`
	// RuntimePath is the shim, a file of the payload. Without it, containerd looks
	// for one by RuntimeType on its PATH.
	RuntimePath string `json:"runtimePath,omitempty"`
	// Options are what the shim is given.
	Options *ContainerdOptions `json:"options,omitempty"`
	// Snapshotter is that of containers on this handler.
	Snapshotter string `json:"snapshotter,omitempty"`
	// Sandboxer is podsandbox or shim, from containerd 2.0 on.
	Sandboxer string `json:"sandboxer,omitempty"`
	// PodAnnotations and ContainerAnnotations are patterns of those that are
	// passed on.
	PodAnnotations       []string `json:"podAnnotations,omitempty"`
	ContainerAnnotations []string `json:"containerAnnotations,omitempty"`
	// PrivilegedWithoutHostDevices keeps devices of the node from privileged
	// containers.
	PrivilegedWithoutHostDevices bool `json:"privilegedWithoutHostDevices,omitempty"`
}

// runcShim is what every node with containerd has on its PATH.
const runcShim = "io.containerd.runc.v2"

// ByPath is a handler with a RuntimePath on a node as containerd has to be told it: a
// shim is named by its path in runtime_type. runtime_path is not used at all by 1.6,
// and by 2.4 only until it is restarted, when it looks for the shims of running
// containers by their runtime_type, and ends those whose shim is not on its PATH.
// Shims of runc's kind keep their name, by which containerd knows the form of their
// options.
func (h ContainerdHandler) ByPath() ContainerdHandler {
	if h.RuntimePath != "" && h.RuntimeType != runcShim {
		h.RuntimeType, h.RuntimePath = h.RuntimePath, ""
	}
	return h
}

// ContainerdOptions are options of shims. Paths may have placeholders.
type ContainerdOptions struct {
	// TypeURL names the message that the shim expects, if it has one of its own.
	TypeURL string `json:"typeUrl,omitempty"`
	// ConfigPath is the shim's configuration.
	ConfigPath string `json:"configPath,omitempty"`
	// BinaryName is the program that a shim of runc's kind runs.
	BinaryName string `json:"binaryName,omitempty"`
	// SystemdCgroup is as for runc; nil takes what the node's runc has.
	SystemdCgroup *bool `json:"systemdCgroup,omitempty"`
}

// CRIOHandler are the keys of a runtime in CRI-O's configuration.
type CRIOHandler struct {
	// RuntimeType is oci or vm.
	RuntimeType string `json:"runtimeType"`
	// RuntimePath is a file of the payload: with oci a program like runc, with vm a shim,
	// which has to be called containerd-shim-NAME-v2.
	RuntimePath string `json:"runtimePath"`
	// RuntimeConfigPath is the configuration of a shim, with vm alone; it may have
	// placeholders.
	RuntimeConfigPath string `json:"runtimeConfigPath,omitempty"`
	// RuntimeRoot is where the runtime keeps its state.
	RuntimeRoot string `json:"runtimeRoot,omitempty"`
	// AllowedAnnotations are those that CRI-O honours on this handler.
	AllowedAnnotations []string `json:"allowedAnnotations,omitempty"`
	// PrivilegedWithoutHostDevices is as for containerd.
	PrivilegedWithoutHostDevices bool `json:"privilegedWithoutHostDevices,omitempty"`
}

// Check is a command.
type Check struct {
	// Name is what a report calls it.
	Name string `json:"name"`
	// Command is a program of the payload, by its path there, and its arguments,
	// which may have placeholders.
	Command []string `json:"command"`
	// TimeoutSeconds is 30 if it is 0.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`
}
