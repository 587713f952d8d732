package pod

import "time"

// HandlerInfo describes a runtime handler as it was observed.
//
// Larger than other structs: it is all that callers are told of a handler, in one
// object.
type HandlerInfo struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"` // "oci", "shim"
	Path     string `json:"path"`
	Runtime  string `json:"runtime,omitempty"` // what the program calls itself: "runc", "crun"
	Version  string `json:"version,omitempty"`
	Revision string `json:"revision,omitempty"` // of definition and program
	Digest   string `json:"digest,omitempty"`   // of the program, sha256 in hexadecimal
	Default  bool   `json:"default,omitempty"`
	Ready    bool   `json:"ready"`
	Reason   string `json:"reason,omitempty"` // why it is not ready
	Trying   bool   `json:"trying,omitempty"` // not ready because its first trial has not ended yet
	Late     bool   `json:"late,omitempty"`   // not ready because its trial ran out of time: another may do better
	// Draining says that it has pods and takes no new ones; Reason says since when.
	Draining bool            `json:"draining,omitempty"`
	OCI      string          `json:"ociVersion,omitempty"` // the ociVersion that it accepts in config.json
	Flaws    []Flaw          `json:"flaws,omitempty"`      // that are known of Version
	Features HandlerFeatures `json:"features"`
	Trial    HandlerTrial    `json:"trial,omitzero"`
	// VerifiedAt is when the trial ended of which this tells; zero before the first.
	VerifiedAt time.Time `json:"verifiedAt,omitzero"`
	// Since is when it was first found ready, or not ready, as it is now.
	Since time.Time `json:"since,omitzero"`
	// PrivilegedWithoutHostDevices keeps host devices from privileged containers.
	PrivilegedWithoutHostDevices bool `json:"privilegedWithoutHostDevices,omitempty"`
	// SandboxProcess says that every pod of this handler needs a process of its own.
	SandboxProcess bool `json:"sandboxProcess,omitempty"`
	// OwnKernel says that the containers of a pod run inside that process, and are
	// none of the host's.
	OwnKernel bool `json:"ownKernel,omitempty"`
	// PodAnnotations and ContainerAnnotations name what may pass to the runtime:
	// whole names, or their beginning and "*". No other annotation ever does.
	PodAnnotations       []string `json:"podAnnotations,omitempty"`
	ContainerAnnotations []string `json:"containerAnnotations,omitempty"`
}

// Flaw is a security flaw of a version of a runtime. A distribution may have mended
// it and kept the number.
type Flaw struct {
	ID       string   `json:"id"` // "CVE-2025-31133"
	What     string   `json:"what"`
	MendedIn []string `json:"mendedIn"` // for each branch the first version without it
}

// HandlerState says whether pods can be run on a handler.
type HandlerState string

// The states of a handler.
const (
	HandlerUnverified HandlerState = "Unverified" // its first trial has not ended yet
	HandlerReady      HandlerState = "Ready"
	HandlerFailed     HandlerState = "Failed"   // Reason says why
	HandlerDraining   HandlerState = "Draining" // it was removed and has pods
)

// HandlerUse is what a pod runs on. Revision is empty where nobody wrote it down.
type HandlerUse struct{ Handler, Revision string }

// State is the state that was observed.
func (i *HandlerInfo) State() HandlerState {
	switch {
	case i.Draining:
		return HandlerDraining
	case i.Ready:
		return HandlerReady
	case i.Trying:
		return HandlerUnverified
	}
	return HandlerFailed
}

// HandlerTrial is what was measured while a handler was tried.
type HandlerTrial struct {
	// Start is from the call of the runtime until the program in the container ran.
	Start time.Duration `json:"startNs,omitempty"`
	// Overhead is the memory of what runs beside the program, in bytes: zero where
	// nothing does.
	Overhead int64 `json:"overheadBytes,omitempty"`
}

// Cost is what something takes without doing anything.
type Cost struct {
	Memory int64   // bytes
	CPU    float64 // thousandths of a processor
}

// HandlerCosts is what was measured of pods that do nothing.
type HandlerCosts struct {
	// Pods has, for each pod, what runs beside its workload.
	Pods []Cost
	// Monitor is what the node's monitor takes more for one such pod.
	Monitor Cost
}

// HandlerFeatures are abilities, observed and not assumed.
type HandlerFeatures struct {
	RecursiveReadOnlyMounts bool `json:"recursiveReadOnlyMounts,omitempty"`
	UserNamespaces          bool `json:"userNamespaces,omitempty"`
	// NoUserNamespaces is why there are none.
	NoUserNamespaces string `json:"noUserNamespaces,omitempty"`
	Seccomp          bool   `json:"seccomp,omitempty"`
	AppArmor         bool   `json:"appArmor,omitempty"`
	SELinux          bool   `json:"selinux,omitempty"`
	// Devices are those of the host in containers, Resize is to change limits of one
	// that runs, Stats are those of each container.
	Devices     bool `json:"devices,omitempty"`
	Resize      bool `json:"resize,omitempty"`
	Stats       bool `json:"stats,omitempty"`
	Checkpoints bool `json:"checkpoints,omitempty"`
	// NoCheckpoints is why there are none.
	NoCheckpoints string `json:"noCheckpoints,omitempty"`
	// Unsure says that the machine was too busy to try all of them.
	Unsure bool `json:"unsure,omitempty"`
}

// Bundle is a prepared OCI bundle.
type Bundle struct {
	Path string `json:"path"`
	User User   `json:"user"`
	// StopSignal is resolved: "SIGTERM" unless the request or the image says otherwise.
	StopSignal string `json:"stopSignal"`
	// Warnings are wishes of the caller that this host cannot meet, for the log.
	Warnings []string `json:"warnings,omitempty"`
}

// ImageConfig is what an image says about the process that runs from it.
type ImageConfig struct {
	User       string   `json:"user,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
	Env        []string `json:"env,omitempty"` // "NAME=value"
	WorkingDir string   `json:"workingDir,omitempty"`
	StopSignal string   `json:"stopSignal,omitempty"`
	Volumes    []string `json:"volumes,omitempty"`
}

// Exit is how a process ended.
type Exit struct {
	Code       int32     `json:"code"` // 128 + signal where a signal ended it
	Signal     int       `json:"signal,omitempty"`
	FinishedAt time.Time `json:"finishedAt"`
	OOMKilled  bool      `json:"oomKilled,omitempty"`
	// Found says that nobody saw when it ended: FinishedAt is when it was found to
	// have.
	Found bool `json:"found,omitempty"`
	// Lost says that nobody saw the end: Code means nothing.
	Lost bool `json:"lost,omitempty"`
}
