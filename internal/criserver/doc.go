// Package criserver speaks the Kubernetes container runtime interface: the
// gRPC services RuntimeService and ImageService of k8s.io/cri-api, version v1.
//
// It translates. Each RPC has a file of its own that decodes and checks the
// request, makes one call and encodes the answer; readiness, logging, panics
// and status codes are the interceptors' part. The interfaces in ports.go say
// what it needs from the core, the images, the network and the streams.
//
// It decides nothing about pods and keeps no state: that is internal/lifecycle.
// It serves no exec, attach or port-forward traffic: that is internal/streaming.
//
// Larger than other packages: one type has to have every call of the CRI, and
// they share the encoding of what several of them answer.
package criserver
