// Package cgroup does the two things that the monitor needs of cgroups: a
// group of its own, so that whoever stops the daemon does not kill it, and the
// kernel's count of processes killed for memory.
//
// It does not limit or account containers; that is the OCI runtime's and the
// daemon's work.
package cgroup
