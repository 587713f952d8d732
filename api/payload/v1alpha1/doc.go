// Package v1alpha1 is what a payload of a container runtime says of itself, what
// may be set about it, and what the installer answers.
//
// A payload is a folder, normally the root of an image: payload.json and the files
// that it lists. The operator, the webhook and the image builder read the same
// types as the installer on the node. The package decodes and checks; it opens no
// file of the payload.
//
// +kubebuilder:object:generate=true
package v1alpha1

//go:generate ../../../bin/tools/controller-gen object paths=.
//go:generate ../../../bin/tools/gofumpt -w zz_generated.deepcopy.go

const (
	// APIVersion is of all documents here.
	APIVersion = "payload.fairlead.run/v1alpha1"
	// ManifestName is the file of the manifest in the payload's folder.
	ManifestName = "payload.json"
	// MaxDocument is the largest document that is read, in bytes.
	MaxDocument = 1 << 20
	// MaxResult is the largest result, in bytes: what a kubelet keeps of a
	// termination message.
	MaxResult = 4096
)

// Placeholders of absolute paths, in the content of a Config, in options and in
// arguments of checks.
const (
	// PayloadDir stands for the folder of this version on the node.
	PayloadDir = "${PAYLOAD}"
	// ConfigDir stands for the folder of the configs on the node.
	ConfigDir = "${CONFIG}"
)
