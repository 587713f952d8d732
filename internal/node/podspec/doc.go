// Package podspec says in the words of the CRI what a Pod asks for: the
// sandbox, its containers, their environment and resources, as the kubelet
// would for the same Pod on one machine without a cluster.
//
// It is pure. Facts about the node and the objects that the pod refers to are
// handed in; volumes are prepared elsewhere and given as mounts.
package podspec
