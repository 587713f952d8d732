// Package status says what a pod is in the words of the API: its v1.PodStatus,
// from its spec, what a runtime has of it, the plan for it, what its probes came
// to, and what was told last.
//
// It is pure. The same facts give the same status, and what was told last is one
// of the facts: times of conditions and numbers of restarts are kept through it,
// so whoever asks needs to remember nothing else. It knows no API server: who
// writes a status there, and when, is decided elsewhere. The rules are the
// kubelet's, from the API reference and the page about the pod lifecycle of
// Kubernetes 1.36, and from KEP-127, KEP-753, KEP-1287, KEP-3085, KEP-3329 and
// KEP-5067.
package status
