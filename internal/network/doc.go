// Package network gives pods their network: what an attachment is, the ledger
// that remembers every attachment until it is released, and the switch that
// picks a driver for each pod.
//
// The drivers are in folders of their own: bridge is built in, cni runs the
// plugins of a conflist. Beside them are the small things that any pod network
// needs and that do not depend on the driver: bandwidth limits, and a
// connection to a port inside a pod. The text of resolv.conf and hosts is
// written by internal/sandbox.
//
// It is not about pods that use the node's own network; those never come here.
// It makes no namespaces either: the caller pins one, hands over its path, and
// drops it after Detach.
package network
