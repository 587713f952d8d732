// Package volume makes the volumes of a Pod on this machine: folders, memory
// file systems, the files of ConfigMaps, Secrets, tokens and the downward API,
// and what PersistentVolumeClaims are bound to. It gives each volumeMount a host
// path that is safe to hand to a runtime, also where a subPath leads through
// links that a container made.
//
// What is there is found again by looking at it: after a restart of the agent,
// Prepare adopts folders and mounts that containers still use, and writes nothing
// that is right already. So there is no record to keep, except for volumes of CSI
// drivers, whose calls have to be undone by name (package csi).
//
// Everything is below the pod's own folders and is gone after Remove. Content of
// host paths is never touched.
package volume
