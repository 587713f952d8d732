// Package peer starts the daemons that are compared, each with root, state,
// socket, network and mounts of its own, and connects to them: Fairlead, and
// containerd with its shim. It also says which processes make up a daemon.
//
// What they are made to do is in package load.
package peer
