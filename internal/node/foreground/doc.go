// Package foreground runs the pods of manifests for as long as somebody looks on: it
// pulls their images, has an agent of its own start them and restart what ends, passes on
// what they write and what becomes of them, and takes everything down again.
//
// Nothing that it knows outlives its caller, only pods that it is told to leave. A pod
// that cannot be started takes down what the same run created; what others created is
// never touched.
package foreground
