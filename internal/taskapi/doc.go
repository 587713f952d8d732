// Package taskapi talks to containerd shims of version 2: the task service, in its
// versions 2 and 3, over ttrpc, and what a shim answers when it is started. It
// keeps the record of which shim runs a container.
//
// The daemon uses it to signal containers, and the small process of the monitor
// that stands in for a container on the host. That process lives as long as the
// container, so the few messages are encoded here, and not by the generated code,
// which would be most of its memory. It starts no program.
package taskapi
