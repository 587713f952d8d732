// Package cluster is how Fairlead's commands see a Kubernetes cluster: which API
// server it is (Config), requests of it (Client), and memories of RuntimeClasses,
// RuntimeClassPolicies, namespaces, nodes and pods that watches keep fresh (Cache),
// or of what else is wanted of one resource (Follow).
//
// It has a scheme of its own, of the few groups that are needed, and no clientset:
// that of k8s.io/client-go/kubernetes knows all of Kubernetes, and would cost the
// node's daemon, which is the same program, 10 MB of memory. What Fairlead does
// not look at is taken out of objects before they are kept.
//
// It decides nothing: what classes and policies mean is in pkg/runtimeclass.
package cluster
