// Package volume makes the volumes of a Pod on this machine: folders, memory
// file systems, and the files of ConfigMaps, Secrets and the downward API. It
// gives each volumeMount a host path that is safe to hand to a runtime, also
// where a subPath leads through links that a container made.
//
// Everything is below two folders of the pod's own, one on disk and one in
// memory, and is gone after Remove. Content of host paths is never touched.
package volume
