// Package cgroups keeps the tree of cgroups that pods are in: one for all pods
// of the node, below it one for each class of service, and in these one for each
// pod. Names and values are the kubelet's, so that whatever reads a node finds
// pods where it expects them.
//
// It sets limits, changes them in place, and removes what is left of pods that
// are gone. Containers' cgroups are the runtime's, which makes them below
// Manager.Parent. What a node has to give away is of internal/node/capacity.
//
// On cgroup v1 the tree is in all hierarchies, on a hybrid host also in that of
// cgroup v2.
package cgroups
