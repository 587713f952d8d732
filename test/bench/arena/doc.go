// Package arena is where the benchmark takes place: a PID, network and mount
// namespace of its own, a folder on disk and one in memory, and one more network
// and mount namespace for each daemon. When the benchmark ends, or is killed,
// the kernel ends everything in it, and the outermost process removes the rest.
//
// It knows nothing of what is measured.
package arena
