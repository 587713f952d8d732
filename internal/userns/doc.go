// Package userns makes user namespaces, and copies of mounts in which files
// have the owners that a user namespace maps them to.
//
// It knows nothing of pods, pins nothing and keeps no record.
package userns
