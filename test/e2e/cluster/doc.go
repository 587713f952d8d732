// Package cluster starts a Kubernetes cluster of one node for tests: etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler and kubelet, as their
// releases have them, on Fairlead or on containerd. Certificates are made on the
// spot, and images come from a registry in the test's own process.
//
// It expects to be in the namespaces of an arena, which ends everything that is
// started here. What is asserted of a cluster is not here.
package cluster
