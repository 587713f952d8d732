// Package shimcmd is the command line of OCI runtimes (run, exec, update, delete)
// on top of a containerd shim. It is part of fairlead-monitor: to the monitor, a
// container of a shim is started like one of runc.
//
// What it leaves for a container, and for a process that was executed in one, is
// a stand-in: a process that waits for the other at the shim and ends the way it
// ended. It passes input and signals on, and turns a terminal of the monitor's
// into the FIFOs that shims know. Output of containers does not go through it.
//
// The record of which shim runs a container is internal/taskapi's.
package shimcmd
