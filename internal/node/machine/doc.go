// Package machine runs the pods of manifests on one machine, without a cluster: what
// an API server, its admission and its controllers do for a node is done here, as far
// as one machine needs it.
//
// It joins an agent, the sources of manifests and the RuntimeClass rules, keeps the
// last events, and serves what commands ask for on a socket.
package machine
