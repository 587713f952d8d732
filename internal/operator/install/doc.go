// Package install makes the objects by which a runtime comes to the nodes of a pool
// and leaves them again: the settings, and a DaemonSet for either. Both follow the
// labels of internal/operator/nodes. It is pure.
package install
