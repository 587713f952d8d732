// Package inner is the monitor's inner process: the parent of the containers.
//
// It runs the commands of OCI runtimes, adopts the processes that they leave,
// copies their output (package stream), records how they end and serves
// callers. Whatever it must know after its own death is in package record or
// held by the outer process, so a new inner process goes on where the old one
// stopped, and an upgrade is an exec.
//
// It knows nothing of pods and images, makes no decision about a container,
// and restarts nothing.
package inner
