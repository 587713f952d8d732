package pod

import "time"

// HandlerInfo describes a runtime handler as it was observed.
//
// Larger than other structs: it is all that callers are told of a handler, in one
// object.
type HandlerInfo struct {
	Name     string          `json:"name"`
	Kind     string          `json:"kind"` // "oci"
	Path     string          `json:"path"`
	Runtime  string          `json:"runtime,omitempty"` // what the program calls itself: "runc", "crun"
	Version  string          `json:"version,omitempty"`
	Default  bool            `json:"default,omitempty"`
	Ready    bool            `json:"ready"`
	Reason   string          `json:"reason,omitempty"`     // why it is not ready
	Trying   bool            `json:"trying,omitempty"`     // not ready because its first trial has not ended yet
	OCI      string          `json:"ociVersion,omitempty"` // the ociVersion that it accepts in config.json
	Flaws    []Flaw          `json:"flaws,omitempty"`      // that are known of Version
	Features HandlerFeatures `json:"features"`
	Trial    HandlerTrial    `json:"trial,omitzero"`
	// VerifiedAt is when the trial ended of which this tells; zero before the first.
	VerifiedAt time.Time `json:"verifiedAt,omitzero"`
	// PrivilegedWithoutHostDevices keeps host devices from privileged containers.
	PrivilegedWithoutHostDevices bool `json:"privilegedWithoutHostDevices,omitempty"`
	// SandboxProcess says that every pod of this handler needs a process of its own.
	SandboxProcess bool `json:"sandboxProcess,omitempty"`
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
	HandlerFailed     HandlerState = "Failed" // Reason says why
)

// State is the state that was observed.
func (i *HandlerInfo) State() HandlerState {
	switch {
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

// HandlerFeatures are abilities, observed and not assumed.
type HandlerFeatures struct {
	RecursiveReadOnlyMounts bool `json:"recursiveReadOnlyMounts,omitempty"`
	UserNamespaces          bool `json:"userNamespaces,omitempty"`
	// NoUserNamespaces is why there are none.
	NoUserNamespaces string `json:"noUserNamespaces,omitempty"`
	Seccomp          bool   `json:"seccomp,omitempty"`
	AppArmor         bool   `json:"appArmor,omitempty"`
	SELinux          bool   `json:"selinux,omitempty"`
	Checkpoints      bool   `json:"checkpoints,omitempty"`
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
