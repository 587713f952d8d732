// Package sandbox makes what holds a pod together on the host: its folder, the
// pinned namespaces, /dev/shm, the files that its containers share, and its
// cgroup if nobody else made one.
//
// There is no process in it, and no network interface: those are the handler's
// and the network driver's. It keeps no record. What exists is what the kernel
// and the folder say, every path follows from the pod's id, and each call can
// be repeated after a crash at any point of the one before.
package sandbox
