package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	payload "fairlead.run/api/payload/v1alpha1"
)

// RuntimePayload is the release of a container runtime that nodes get: an image,
// and what the image says of itself. There is one for each type, of the type's name.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=rp,categories=fairlead
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.manifest.version`
// +kubebuilder:printcolumn:name="Architectures",type=string,JSONPath=`.spec.manifest.architectures`
// +kubebuilder:printcolumn:name="Handlers",type=string,JSONPath=`.spec.manifest.handlers[*].name`
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.image`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.manifest.type",message="must be the name of the object: there is one payload for each type",fieldPath=".spec.manifest.type"
type RuntimePayload struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec RuntimePayloadSpec `json:"spec"`
}

// RuntimePayloadList is several of them.
//
// +kubebuilder:object:root=true
type RuntimePayloadList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RuntimePayload `json:"items"`
}

// RuntimePayloadSpec is a release.
type RuntimePayloadSpec struct {
	// image has the payload and the program that installs it. It is named by its
	// digest, so that every node gets the same, and nobody changes it afterwards.
	//
	// +required
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[^@\s]+@sha256:[0-9a-f]{64}$`
	Image string `json:"image"`

	// manifest is payload.json of the image.
	//
	// +required
	Manifest payload.RuntimePayload `json:"manifest"`

	// pullSecrets are Secrets in the operator's namespace to pull the image with. If
	// there are none, those of the installer's service account are taken.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	PullSecrets []string `json:"pullSecrets,omitempty"`
}
