// Package oci runs containers by the command line that OCI runtimes share: that
// of runc, which crun has too.
//
// The runtime is a program that ends at once; what it leaves is the container's
// process, a child of fairlead-monitor. So everything that makes a process
// (run, exec) goes through the monitor, and everything that only changes or
// deletes (update, delete) is run from here. Signals are sent without the
// runtime. Streams and Exits put the monitor into the words of the core.
//
// gVisor's runsc has that command line as well, but its containers are no
// processes of the host: see gVisor in sandboxed.go.
//
// Larger than other packages: what a sandbox needs differs in a line or two of
// each verb, and shares the rest of it.
//
// It is not where bundles are written, nor where it is recorded which
// containers exist.
package oci
