// Package v1alpha1 holds Fairlead's own resources in a cluster, group
// fairlead.run: RuntimeClassPolicy, WorkerPool and RuntimePayload.
//
// It is types, their schema and their copies, and no rules: those of policies
// are in pkg/runtimeclass/policy, those of pools in internal/operator/validate. The markers beside the fields make the CRD in
// deploy/crds, which an API server enforces before anybody here sees an object.
//
// +kubebuilder:object:generate=true
// +groupName=fairlead.run
package v1alpha1

//go:generate ../../bin/tools/controller-gen object crd paths=. output:crd:dir=../../deploy/crds
