// Package cni connects pods by the plugins of a CNI conflist, as the CNI
// specification 1.1 says: ADD, DEL, CHECK, STATUS and GC, through libcni.
//
// The first configuration of a directory in lexical order counts, and changes
// of the directory are followed without a restart. A pod is released by the
// very configuration that attached it, which the ledger keeps. Nothing here
// knows any plugin by name, and the loopback interface is brought up without
// one.
//
// It is no place for network features: what a conflist cannot do, pods cannot
// have.
package cni
