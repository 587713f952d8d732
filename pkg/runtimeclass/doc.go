// Package runtimeclass holds the rules of Kubernetes' RuntimeClass on the types
// of k8s.io/api: what a class of an older API version means today, and whether
// a class is well formed.
//
// It is pure: no I/O, no clock, and the objects handed in are never changed nor
// shared with the result. It does not look classes up and does not choose one;
// that needs to know where classes are kept.
package runtimeclass
