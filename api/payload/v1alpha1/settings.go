package v1alpha1

// KindSettings is the kind of InstallSettings.
const KindSettings = "InstallSettings"

// InstallSettings change a payload for one pool. The operator makes them from the
// providerConfig of a ContainerRuntime and mounts them into the installer's pod.
type InstallSettings struct {
	// APIVersion and Kind are those of this package.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Handlers are the names of those that are wanted; none means all.
	Handlers []string `json:"handlers,omitempty"`
	// Configs take the place of those with the same path in the payload.
	Configs []Config `json:"configs,omitempty"`
	// Manifest is the Digest of the one that these settings were made for; "" is any.
	Manifest string `json:"manifest,omitempty"`
}

// KindResult is the kind of InstallResult.
const KindResult = "InstallResult"

// State is how an installation ended.
type State string

// The states.
const (
	// Installed says that the handlers are served and were checked.
	Installed State = "Installed"
	// Removed says that nothing of the runtime is left on the node.
	Removed State = "Removed"
	// RolledBack says that it failed, and that the node is as before: all
	// handlers that were served before are served.
	RolledBack State = "RolledBack"
	// Failed says that it failed, and that the node is not proven to be as before.
	Failed State = "Failed"
	// Refused says that nothing was changed, because something is not as it has
	// to be.
	Refused State = "Refused"
)

// Reason is a cause by one word, for programs.
type Reason string

// The reasons. Those of Refused come first; of them, ConfigurationProblem,
// UnsupportedNode, PayloadInvalid and NotInstalled do not go away by trying again.
const (
	// ConfigurationProblem says that settings or flags are wrong.
	ConfigurationProblem Reason = "ConfigurationProblem"
	// UnsupportedNode says that this operating system, runtime or its
	// configuration is none that can be changed.
	UnsupportedNode Reason = "UnsupportedNode"
	// PayloadInvalid says that the payload is truncated, tampered with, or for
	// other machines.
	PayloadInvalid Reason = "PayloadInvalid"
	// NotInstalled says that the type that was named is not on the node.
	NotInstalled Reason = "NotInstalled"
	// DeviceMissing says that a device is not on the node.
	DeviceMissing Reason = "DeviceMissing"
	// NoSpace says that the disk is full.
	NoSpace Reason = "NoSpace"
	// ReadOnlyTarget says that a folder cannot be written to.
	ReadOnlyTarget Reason = "ReadOnlyTarget"
	// InUse says that pods run on the handler.
	InUse Reason = "InUse"
	// Busy says that another installer is at work.
	Busy Reason = "Busy"
	// Conflict says that the handler is somebody else's, or that somebody keeps
	// undoing what is written.
	Conflict Reason = "Conflict"
	// RuntimeUnavailable says that the CRI runtime did not answer.
	RuntimeUnavailable Reason = "RuntimeUnavailable"
	// RestartFailed says that the CRI runtime could not be restarted.
	RestartFailed Reason = "RestartFailed"
	// HandlerNotServed says that it came back without a handler.
	HandlerNotServed Reason = "HandlerNotServed"
	// CheckFailed says that a check of the payload failed.
	CheckFailed Reason = "CheckFailed"
	// InternalError is all else.
	InternalError Reason = "InternalError"
)

// Permanent says that trying again does not help before somebody changes
// something other than the node.
func (r Reason) Permanent() bool {
	return r == ConfigurationProblem || r == UnsupportedNode || r == PayloadInvalid || r == NotInstalled
}

// InstallResult is what the installer writes as its termination message, and as a line
// on standard output.
//
// A pod that is Ready has installed the payload that it was started with. One that
// ended has the result of the attempt in its message; its exit code is 0 for
// Installed and Removed, 3 if the reason is permanent, and else 1.
type InstallResult struct {
	// APIVersion and Kind are those of this package.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Type and Version are those of the payload.
	Type    string `json:"type"`
	Version string `json:"version,omitempty"`
	// State is how it ended, and Reason why if it failed.
	State  State  `json:"state"`
	Reason Reason `json:"reason,omitempty"`
	// Message is for people.
	Message string `json:"message,omitempty"`
	// Hash is of all that was written into the runtime's configuration.
	Hash string `json:"hash,omitempty"`
	// Handlers are those of the payload that are served.
	Handlers []string `json:"handlers,omitempty"`
	// Served are the handlers of the type that the runtime serves now, from whichever
	// release was verified on the node last: after RolledBack and Refused those of
	// before. It is null if that is not known, and empty if it serves none.
	Served []string `json:"served"`
	// Runtime is the CRI runtime with its version, as "containerd 2.1.0".
	Runtime string `json:"runtime,omitempty"`
	// Restarted says that the CRI runtime was restarted, or told to read its
	// configuration again.
	Restarted bool `json:"restarted,omitempty"`
	// Warnings are what somebody should look at.
	Warnings []string `json:"warnings,omitempty"`
}
