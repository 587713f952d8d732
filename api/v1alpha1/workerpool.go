package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	payload "fairlead.run/api/payload/v1alpha1"
)

// WorkerPool is nodes that are alike, and the container runtimes that they are to
// have beside the one that they came with.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=wp,categories=fairlead
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="CRI",type=string,JSONPath=`.spec.cri.name`
// +kubebuilder:printcolumn:name="Runtimes",type=string,JSONPath=`.spec.cri.containerRuntimes[*].type`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40 && !self.metadata.name.contains('.')",message="the name of a pool has at most 40 characters and no dot, as it becomes a part of labels",fieldPath=".metadata"
type WorkerPool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec WorkerPoolSpec `json:"spec"`
	// +optional
	Status WorkerPoolStatus `json:"status,omitempty"`
}

// WorkerPoolList is several of them.
//
// +kubebuilder:object:root=true
type WorkerPoolList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []WorkerPool `json:"items"`
}

// WorkerPoolSpec is what the nodes are, and what they are to get.
type WorkerPoolSpec struct {
	// nodeSelector chooses the nodes by all of these labels. A node is in one pool
	// only: of several that choose it, the one that had it first keeps it.
	//
	// +required
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector"`

	// provider is who rents the machines out, by Gardener's words: aws, azure, gcp,
	// openstack, ... Machine types are judged where it is given: two providers may call
	// different machines the same.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Provider string `json:"provider,omitempty"`

	// machineType is what the machines are called by who rents them out, such as
	// m5.metal.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	MachineType string `json:"machineType,omitempty"`

	// machineImage is the operating system.
	//
	// +required
	MachineImage MachineImage `json:"machineImage"`

	// architecture is that of the processors.
	//
	// +optional
	// +kubebuilder:default=amd64
	// +kubebuilder:validation:Enum=amd64;arm64
	Architecture string `json:"architecture,omitempty"`

	// kubernetesVersion is that of the kubelets, such as 1.37.2. Without it, what
	// the nodes say is taken.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^v?[0-9]+\.[0-9]+(\.[0-9]+)?([-+].*)?$`
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// cri is the runtime that kubelets talk to, and the ones below it.
	//
	// +required
	CRI CRI `json:"cri"`

	// maxUnavailable is how many nodes may be worked on at the same time: a number,
	// or percents of the pool, rounded down and never less than one.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 1000 : self.matches('^([1-9][0-9]?|100)%$')",message="give a number from 1 to 1000, or from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// startupTaint is a taint that nodes are born with, and that is taken off when
	// all runtimes of the pool are ready on them. Nobody puts it on here.
	//
	// +optional
	StartupTaint *StartupTaint `json:"startupTaint,omitempty"`

	// restart is how the CRI runtime is made to read its configuration.
	//
	// +optional
	// +kubebuilder:default={method: auto}
	Restart Restart `json:"restart,omitempty"`
}

// MachineImage is an operating system.
type MachineImage struct {
	// name is ubuntu, debian, coreos, flatcar, suse-chost, rhel, ...
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`
	// version is that of the operating system.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`
}

// CRI is the runtime that kubelets talk to.
//
// +kubebuilder:validation:XValidation:rule="self.name == oldSelf.name",message="cannot be changed: the nodes have what was installed for the other one; make another pool",fieldPath=".name"
type CRI struct {
	// name is containerd or crio.
	//
	// +required
	// +kubebuilder:validation:Enum=containerd;crio
	Name CRIName `json:"name"`
	// containerRuntimes are the ones to install.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	ContainerRuntimes []PoolRuntime `json:"containerRuntimes,omitempty"`
}

// CRIName is a CRI runtime.
type CRIName string

// The CRI runtimes.
const (
	CRIContainerd CRIName = "containerd"
	CRICRIO       CRIName = "crio"
)

// Runs says whether it can have a handler of a payload. What is not said is containerd, as
// nearly all nodes have it, and Gardener's.
func (n CRIName) Runs(h *payload.Handler) bool {
	if n == CRICRIO {
		return h.CRIO != nil
	}
	return h.Containerd != nil
}

// PoolRuntime is a runtime of a pool.
type PoolRuntime struct {
	// type is the runtime, such as gvisor or kata-containers.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Type string `json:"type"`
	// providerConfig is what the type understands; see its documentation.
	//
	// +optional
	// +kubebuilder:validation:XPreserveUnknownFields
	// +kubebuilder:pruning:PreserveUnknownFields
	ProviderConfig *runtime.RawExtension `json:"providerConfig,omitempty"`
}

// StartupTaint is a taint.
type StartupTaint struct {
	// key is that of the taint.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Key string `json:"key"`
	// effect is that of the taint.
	//
	// +optional
	// +kubebuilder:default=NoSchedule
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect string `json:"effect,omitempty"`
}

// Restart is how the CRI runtime is made to read its configuration.
//
// +kubebuilder:validation:XValidation:rule="(self.method == 'command') == has(self.command)",message="is for the method command, which needs it",fieldPath=".command"
type Restart struct {
	// method is auto (what fits the CRI runtime and the node), systemd (restart its
	// unit), sighup (crio only), command, or none (somebody else restarts it).
	//
	// +optional
	// +kubebuilder:default=auto
	// +kubebuilder:validation:Enum=auto;systemd;sighup;command;none
	Method RestartMethod `json:"method,omitempty"`
	// command is a program on the node, by its absolute path or its name, and its arguments.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=1024
	Command []string `json:"command,omitempty"`
}

// RestartMethod is how the CRI runtime is made to read its configuration.
type RestartMethod string

// The methods.
const (
	RestartAuto    RestartMethod = "auto"
	RestartSystemd RestartMethod = "systemd"
	RestartSighup  RestartMethod = "sighup"
	RestartCommand RestartMethod = "command"
	RestartNone    RestartMethod = "none"
)

// WorkerPoolStatus is how far a pool is.
type WorkerPoolStatus struct {
	// observedGeneration is the generation that all this is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// nodes is how many nodes are in the pool.
	//
	// +optional
	Nodes int32 `json:"nodes"`
	// contested are nodes that the selector chooses and another pool has, the first
	// of them by name.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=10
	Contested []string `json:"contested,omitempty"`
	// runtimes are those of the pool, and those that are being taken away.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Runtimes []RuntimeStatus `json:"runtimes,omitempty"`
	// conditions: Valid says that the pool can be acted on, Ready that all its
	// runtimes are on all its nodes.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RuntimeStatus is how far one runtime of a pool is.
type RuntimeStatus struct {
	// type is the runtime.
	Type string `json:"type"`
	// state is that of its ContainerRuntime: Pending, Processing, Succeeded, Error,
	// Failed or Aborted.
	State string `json:"state"`
	// readyNodes is on how many nodes it was verified.
	//
	// +optional
	ReadyNodes int32 `json:"readyNodes"`
	// message is what its ContainerRuntime says.
	//
	// +optional
	Message string `json:"message,omitempty"`
}

// The conditions of a WorkerPool.
const (
	ConditionValid = "Valid"
	ConditionReady = "Ready"
)
