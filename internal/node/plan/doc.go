// Package plan decides what is to be done next for a pod: from what its spec
// says, what a runtime has of it and what time it is, to actions in order.
//
// It is pure. The same question has the same answer, nothing is remembered, and
// nothing is done: whoever asks carries the actions out, looks again, and asks
// again. When all is as it should be there are no actions. So init containers,
// sidecars, restarts and their pauses, the loss of a sandbox and the order in
// which containers end are tables in tests. The rules are the kubelet's, from
// the pages about the pod lifecycle, sidecar containers and container restart
// rules of Kubernetes 1.36 (KEP-753, KEP-5307, KEP-1287, KEP-5532).
//
// It knows no CRI, no probes and no hooks: what they came to is told to it in its
// own words.
package plan
