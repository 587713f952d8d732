package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ContainerRuntime asks for one container runtime on the nodes of one worker pool.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels="gardener.cloud/deletion-protected=true"
// +kubebuilder:resource:scope=Namespaced,path=containerruntimes,shortName=cr,singular=containerruntime
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Type,JSONPath=".spec.type",type=string,description="The type of the Container Runtime resource."
// +kubebuilder:printcolumn:name=Status,JSONPath=".status.lastOperation.state",type=string,description="status of the last operation, one of Aborted, Processing, Succeeded, Error, Failed"
// +kubebuilder:printcolumn:name=Age,JSONPath=".metadata.creationTimestamp",type=date,description="creation timestamp"
type ContainerRuntime struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ContainerRuntimeSpec `json:"spec"`
	// +optional
	Status ContainerRuntimeStatus `json:"status"`
}

// ContainerRuntimeList is several of them.
//
// +kubebuilder:object:root=true
type ContainerRuntimeList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ContainerRuntime `json:"items"`
}

// ContainerRuntimeSpec is what is asked for.
type ContainerRuntimeSpec struct {
	// type is the runtime, such as gvisor.
	Type string `json:"type"`
	// class says which of several controllers of a type is to act: none and shoot
	// are for clusters, seed and garden for what Gardener itself runs on.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="Value is immutable"
	Class *string `json:"class,omitempty"`
	// providerConfig is the configuration that the type understands.
	//
	// +kubebuilder:validation:XPreserveUnknownFields
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	ProviderConfig *runtime.RawExtension `json:"providerConfig,omitempty"`
	// binaryPath is the folder on the nodes to put programs into.
	BinaryPath string `json:"binaryPath"`
	// workerPool is the pool.
	WorkerPool ContainerRuntimeWorkerPool `json:"workerPool"`
}

// ContainerRuntimeWorkerPool is a worker pool.
type ContainerRuntimeWorkerPool struct {
	// name is that of the pool. It cannot be changed.
	Name string `json:"name"`
	// selector has the nodes of the pool.
	Selector metav1.LabelSelector `json:"selector"`
}

// ContainerRuntimeStatus is how far it is.
type ContainerRuntimeStatus struct {
	// providerStatus is what the type says of itself.
	//
	// +kubebuilder:validation:XPreserveUnknownFields
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	ProviderStatus *runtime.RawExtension `json:"providerStatus,omitempty"`
	// conditions are what was observed last.
	//
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
	// lastError is why the last operation did not succeed, if it did not.
	//
	// +optional
	LastError *LastError `json:"lastError,omitempty"`
	// lastOperation is what is or was being done.
	//
	// +optional
	LastOperation *LastOperation `json:"lastOperation,omitempty"`
	// observedGeneration is the generation that all this is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// state is what a controller in another place needs to go on.
	//
	// +kubebuilder:validation:XPreserveUnknownFields
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	State *runtime.RawExtension `json:"state,omitempty"`
	// resources are objects that state names.
	//
	// +optional
	Resources []NamedResourceReference `json:"resources,omitempty"`
}

// Condition is one observation.
type Condition struct {
	// type is what it is about.
	Type string `json:"type"`
	// status is True, False or Unknown.
	Status string `json:"status"`
	// lastTransitionTime is when status changed last.
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	// lastUpdateTime is when anything of it changed last.
	LastUpdateTime metav1.Time `json:"lastUpdateTime"`
	// reason is a word for programs.
	Reason string `json:"reason"`
	// message is a sentence for people.
	Message string `json:"message"`
	// codes are causes that programs know.
	//
	// +optional
	Codes []ErrorCode `json:"codes,omitempty"`
}

// LastError is why an operation did not succeed.
type LastError struct {
	// description is a sentence for people.
	Description string `json:"description"`
	// taskID is the part of the operation that it came from.
	//
	// +optional
	TaskID *string `json:"taskID,omitempty"`
	// codes are causes that programs know.
	//
	// +optional
	Codes []ErrorCode `json:"codes,omitempty"`
	// lastUpdateTime is when it was so last.
	//
	// +optional
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`
}

// LastOperation is what is or was being done.
type LastOperation struct {
	// description is a sentence for people.
	Description string `json:"description"`
	// lastUpdateTime is when anything of this changed last.
	LastUpdateTime metav1.Time `json:"lastUpdateTime"`
	// progress is in percent.
	Progress int32 `json:"progress"`
	// state is one of Processing, Succeeded, Error, Failed, Pending and Aborted.
	State OperationState `json:"state"`
	// type is one of Create, Reconcile, Delete, Migrate and Restore.
	Type OperationType `json:"type"`
}

// NamedResourceReference is an object under a name of its own.
type NamedResourceReference struct {
	// name is what state calls it.
	Name string `json:"name"`
	// resourceRef is the object.
	ResourceRef ResourceReference `json:"resourceRef"`
}

// ResourceReference is an object in the same namespace.
//
// +structType=atomic
type ResourceReference struct {
	// kind is that of the object.
	Kind string `json:"kind"`
	// name is that of the object.
	Name string `json:"name"`
	// apiVersion is that of the object.
	//
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
}
