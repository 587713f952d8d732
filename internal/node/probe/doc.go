// Package probe asks containers whether they have started, live and are ready:
// startup, liveness and readiness probes of Kubernetes, by a command in the
// container, HTTP, TCP or gRPC.
//
// Machine is the rules alone: what to try when, and what the answers come to.
// Prober asks once. Watch brings the two together for one attempt at a container
// and tells when something has changed. What follows from that is for others to
// decide: this package ends nothing and restarts nothing.
package probe
