// Package server is the API of a node, which a kubelet has on port 10250: logs
// of containers, exec, attach and port-forward, pods, stats, metrics, health. The
// API server reaches nodes by it, and so do kubectl, metrics-server and Prometheus.
//
// It knows of pods what Node says and of everything else what the CRI says, and
// keeps nothing. Streams are the runtime's: they are joined, not looked into. Who
// may ask is decided by a gate in front of it (package access); without one, as
// on a unix socket, whoever can connect may do everything.
package server
