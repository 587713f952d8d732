// Package spec writes the OCI bundles that runtimes start containers from:
// config.json, and the folders that it names.
//
// What is in config.json comes from the pod's own fields, the image's process
// settings and what was observed of the host. Image labels never count, and
// annotations only where the handler's configuration names them. A wish that
// the host cannot meet is refused if the container would be less safe or not
// do its work without, and else left out with a warning.
//
// It starts no process, mounts nothing, and keeps no record: the pod's record
// is its input, and everything that it writes can be written again.
package spec
