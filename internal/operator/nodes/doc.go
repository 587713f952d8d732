// Package nodes is the only writer of nodes: it puts them into pools, says which
// runtimes they are to have and which they have, lifts startup taints, and keeps the
// pace.
//
// What becomes of a node is decided by pure functions from the node, its pool and
// the installer's pods. It installs nothing: DaemonSets of internal/operator/install
// follow the labels that are written here.
package nodes
