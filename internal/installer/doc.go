// Package installer brings container runtimes to a node and takes them away again:
// it stages a payload, hooks it into the node's CRI runtime, restarts that, looks
// whether all handlers are served, and puts everything back if they are not.
//
// It works on files and on the CRI socket of one node, knows no cluster and needs
// no credentials. It knows no runtime in particular either: what there is to know
// of gVisor or Kata is in their payloads. Every step is written into the journal
// before it is taken, so that one who is killed is followed by one who goes on.
//
// Larger than other packages: installing, uninstalling, repairing and undoing are turns
// over the same records, and each has to know what the others may have left half done.
package installer
