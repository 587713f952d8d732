package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RuntimeClassPolicy says which RuntimeClasses the pods of some namespaces may
// use, must use, and get if they name none.
//
// Each policy that selects a namespace holds there: what one of them refuses is
// refused.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=rcp,categories=fairlead
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Default",type=string,JSONPath=`.spec.defaultClass`
// +kubebuilder:printcolumn:name="Isolation",type=string,JSONPath=`.spec.minimumIsolation`
// +kubebuilder:printcolumn:name="Allowed",type=string,JSONPath=`.spec.allowedClasses`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RuntimeClassPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec RuntimeClassPolicySpec `json:"spec"`
}

// RuntimeClassPolicyList is several of them.
//
// +kubebuilder:object:root=true
type RuntimeClassPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RuntimeClassPolicy `json:"items"`
}

// RuntimeClassPolicySpec is what a policy demands.
//
// +kubebuilder:validation:XValidation:rule="!has(self.defaultClass) || !has(self.allowedClasses) || self.defaultClass in self.allowedClasses",message="must be among allowedClasses, or the pods that get it are refused",fieldPath=".defaultClass",reason=FieldValueInvalid
// +kubebuilder:validation:XValidation:rule="!has(self.quota) || !has(self.allowedClasses) || self.quota.all(q, q.className in self.allowedClasses)",message="names a class that is not among allowedClasses: nothing of it can run",fieldPath=".quota",reason=FieldValueInvalid
// +kubebuilder:validation:XValidation:rule="has(self.defaultClass) || has(self.allowedClasses) || has(self.minimumIsolation) || has(self.requiredFeatures) || has(self.quota)",message="demands nothing: give at least one of defaultClass, allowedClasses, minimumIsolation, requiredFeatures and quota"
type RuntimeClassPolicySpec struct {
	// mode is what becomes of a pod that breaks the policy: enforce refuses it,
	// warn admits it and warns its author, audit admits it and leaves a line in
	// the audit log of the API server. Each also does what those after it do.
	//
	// +optional
	// +kubebuilder:default=enforce
	Mode Mode `json:"mode,omitempty"`

	// namespaceSelector chooses namespaces by their labels. Empty chooses all.
	// The name of a namespace is its label kubernetes.io/metadata.name.
	//
	// +required
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`

	// defaultClass is the RuntimeClass of pods that name none. Of several enforced
	// policies for one namespace, the first by name that has one decides; what is
	// not enforced only says what pods would get.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	DefaultClass string `json:"defaultClass,omitempty"`

	// allowedClasses are the RuntimeClasses that pods may have. With "" among
	// them, they may have none. If it is missing, all are allowed.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	AllowedClasses []string `json:"allowedClasses,omitempty"`

	// minimumIsolation is the least that must lie between a pod and the kernel of
	// its node. A class says what it has in its label fairlead.run/isolation; one
	// without it, and a pod without a class, have none.
	//
	// +optional
	MinimumIsolation Isolation `json:"minimumIsolation,omitempty"`

	// requiredFeatures are what the handler of a pod's class must be known to
	// have on every node that the class has.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	RequiredFeatures []Feature `json:"requiredFeatures,omitempty"`

	// quota bounds how many pods that have not ended a class may have in each of
	// the namespaces.
	//
	// +optional
	// +listType=map
	// +listMapKey=className
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Quota []ClassQuota `json:"quota,omitempty"`
}

// Mode is what becomes of a pod that breaks a policy.
//
// +kubebuilder:validation:Enum=enforce;warn;audit
type Mode string

// The modes.
const (
	ModeEnforce Mode = "enforce"
	ModeWarn    Mode = "warn"
	ModeAudit   Mode = "audit"
)

// Isolation is what lies between a pod and the kernel of its node.
//
// +kubebuilder:validation:Enum=none;sandbox;vm
type Isolation string

// The levels, from the least to the most.
const (
	IsolationNone    Isolation = "none"    // the kernel of the node, as under runc and crun
	IsolationSandbox Isolation = "sandbox" // a kernel of its own in user space, as under gVisor
	IsolationVM      Isolation = "vm"      // a virtual machine, as under Kata Containers
)

// Feature is something that a handler can do: the field of
// status.runtimeHandlers[].features of a node, or a name of Fairlead's.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`
type Feature string

// ClassQuota is how many pods of a class may be.
type ClassQuota struct {
	// className is a RuntimeClass, or "" for pods without one.
	//
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	ClassName string `json:"className"`

	// pods is the most that a namespace may have.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	Pods int32 `json:"pods"`
}
