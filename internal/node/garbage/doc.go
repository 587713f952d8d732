// Package garbage removes from a node what no pod needs any more: images when
// the disk fills up or when nobody has used them for long, containers that have
// ended, sandboxes that do not run, and log folders of pods that are gone.
//
// What goes is decided by pure functions (images.go, dead.go). It stops no
// container and evicts no pod.
package garbage
