// Package csi mounts volumes through the drivers of the Container Storage
// Interface: the calls that a node makes to a driver on this machine, by the
// driver's socket. Creating volumes and attaching them to nodes is others' work.
//
// A call to a driver has to be undone by name, also by an agent that was started
// since. So what is about to be mounted is recorded beside it first, and a volume
// that several pods share has a list of them where it is staged. The calls
// themselves are idempotent by the interface's rules: after a crash they are made
// again.
package csi
