// Package fields knows the fields of Kubernetes' types by their JSON names: what
// they are called, what an unknown one was meant to be, and which values they
// do not take.
//
// It knows no rules about what is in the fields beyond their types; those are
// in package manifest.
package fields
