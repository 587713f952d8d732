// Package v1alpha1 is ContainerRuntime as Gardener defines it, group
// extensions.gardener.cloud: by it a cluster asks for one runtime on one worker
// pool, and is told how far that is.
//
// The JSON is Gardener's to the letter, so that a gardenlet and Fairlead's operator
// read the same objects. A cluster that has the CRD already keeps its own.
//
// +kubebuilder:object:generate=true
// +groupName=extensions.gardener.cloud
package v1alpha1

//go:generate ../../../bin/tools/controller-gen object crd paths=. output:crd:dir=../../../deploy/crds/gardener
