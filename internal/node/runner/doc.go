// Package runner runs the pods of manifests on one machine through any CRI
// endpoint: it pulls images, starts pods, restarts what crashed, follows logs,
// and takes everything down again.
//
// It works in the foreground and keeps nothing that outlives its caller but
// the pods themselves. A pod that fails to start takes down what the same run
// created; what others created is never touched.
package runner
