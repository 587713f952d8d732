// Package shim runs containers by containerd shims of version 2.
//
// Each pod has a shim of its own. "fairlead-monitor shim" has the command line of
// an OCI runtime on top of it (internal/monitor/shimcmd), so that everything but
// the trial of a handler, its options and signals is the work of internal/runtime/oci:
// this package is its Adapter.
package shim
