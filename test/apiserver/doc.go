// Package apiserver is as much of a Kubernetes API server as tests of clients
// need, in memory and over real HTTP: get, list, watch, create, update, delete
// and patch of any object, resource versions and conflicts, finalizers, and resources
// that vanish as those of a deleted CRD do.
//
// It admits, defaults and validates nothing. What a real one makes of objects is
// tested in test/e2e.
package apiserver
