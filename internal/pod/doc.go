// Package pod holds the domain: what a pod and its containers are, which
// states they pass through, and what recovery decides about them.
//
// It is pure. It opens no file, starts no process and knows neither the wire
// form (internal/criserver) nor the OCI form (internal/spec). The record of a
// pod, as internal/store keeps it, is Record.
package pod
