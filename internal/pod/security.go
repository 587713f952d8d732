package pod

import "strings"

// Security is the security context of a pod or of a container. A field that
// only containers have is zero in a pod's.
type Security struct {
	Namespaces      Namespaces      `json:"namespaces"`
	Privileged      bool            `json:"privileged,omitempty"`
	Identity        Identity        `json:"identity"`
	ReadOnlyRootfs  bool            `json:"readOnlyRootfs,omitempty"`
	NoNewPrivileges bool            `json:"noNewPrivileges,omitempty"`
	Capabilities    *Capabilities   `json:"capabilities,omitempty"`
	MaskedPaths     []string        `json:"maskedPaths,omitempty"`
	ReadOnlyPaths   []string        `json:"readOnlyPaths,omitempty"`
	Seccomp         *Profile        `json:"seccomp,omitempty"`
	AppArmor        *Profile        `json:"appArmor,omitempty"`
	SELinux         *SELinuxOptions `json:"selinux,omitempty"`
}

// Identity is who a process runs as. UID and Username exclude each other; GID
// needs one of them.
type Identity struct {
	UID                *int64       `json:"uid,omitempty"`
	Username           string       `json:"username,omitempty"`
	GID                *int64       `json:"gid,omitempty"`
	SupplementalGroups []int64      `json:"supplementalGroups,omitempty"`
	GroupsPolicy       GroupsPolicy `json:"groupsPolicy,omitempty"`
}

// GroupsPolicy says whether groups named in the image's /etc/group count
// (KEP-3619).
type GroupsPolicy string

// The policies of KEP-3619.
const (
	GroupsMerge  GroupsPolicy = ""
	GroupsStrict GroupsPolicy = "Strict"
)

// Namespaces says whose namespaces are used.
type Namespaces struct {
	Network  NamespaceMode  `json:"network,omitempty"`
	PID      NamespaceMode  `json:"pid,omitempty"`
	IPC      NamespaceMode  `json:"ipc,omitempty"`
	TargetID string         `json:"targetID,omitempty"` // container whose PID namespace is joined, for NamespaceTarget
	User     *UserNamespace `json:"user,omitempty"`
}

// NamespaceMode is the scope of one namespace.
type NamespaceMode string

// The modes of the CRI.
const (
	NamespacePod       NamespaceMode = ""
	NamespaceContainer NamespaceMode = "Container"
	NamespaceNode      NamespaceMode = "Node"
	NamespaceTarget    NamespaceMode = "Target"
)

// UserNamespace is the user namespace that a pod asks for (KEP-127).
type UserNamespace struct {
	Mode NamespaceMode `json:"mode,omitempty"` // NamespacePod or NamespaceNode
	UIDs []IDMapping   `json:"uids,omitempty"`
	GIDs []IDMapping   `json:"gids,omitempty"`
}

// Capabilities are changes to the runtime's default set. Names come with or
// without "CAP_", in any case; "ALL" stands for every one.
type Capabilities struct {
	Add     []string `json:"add,omitempty"`
	Drop    []string `json:"drop,omitempty"`
	Ambient []string `json:"ambient,omitempty"`
}

// Profile is a seccomp or an AppArmor profile.
type Profile struct {
	Type ProfileType `json:"type"`
	Ref  string      `json:"ref,omitempty"` // for ProfileLocalhost: seccomp, an absolute path; AppArmor, a loaded profile's name
}

// ProfileType is where a Profile comes from.
type ProfileType string

// The profile types of the CRI.
const (
	ProfileRuntimeDefault ProfileType = "RuntimeDefault"
	ProfileUnconfined     ProfileType = "Unconfined"
	ProfileLocalhost      ProfileType = "Localhost"
)

// Labels are the SELinux labels of a pod or container. Both are empty where
// there are none.
type Labels struct {
	Process string `json:"process,omitempty"` // empty, with a Mount: the policy decides
	Mount   string `json:"mount,omitempty"`   // of the files that are its own
}

// Level is the MLS level of the labels: "s0:c1,c2".
func (l Labels) Level() string {
	_, rest, _ := strings.Cut(l.Mount, ":")
	_, rest, _ = strings.Cut(rest, ":")
	_, level, _ := strings.Cut(rest, ":")
	return level
}

// SELinuxOptions is a process label in parts.
type SELinuxOptions struct {
	User  string `json:"user,omitempty"`
	Role  string `json:"role,omitempty"`
	Type  string `json:"type,omitempty"`
	Level string `json:"level,omitempty"`
}
