// Package nri lets plugins take part in the life of pods and containers by the
// Node Resource Interface, version 1 (github.com/containerd/nri): they are told
// what happens, and may change containers that are being created and the limits
// of others.
//
// A Driver is what the core calls Plugins and what the builder of bundles calls
// an Editor. It keeps no record: what plugins changed goes into the pod's record
// and its bundle, and what plugins see is made from these. As long as no plugin is
// connected nothing is made at all.
//
// The library calls plugins one after the other, and for one event at a time.
// One that does not answer within the request timeout is disconnected, and the
// event goes on without it; so do those that wait for their turn.
package nri
