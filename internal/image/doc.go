// Package image pulls, imports, exports, lists, pins and removes container
// images, and says which directories a container's root file system is made
// of. It drives containerd's core libraries inside this process: content
// store, metadata, overlay snapshotter and registry client. No containerd
// daemon is involved.
//
// Everything lives below one directory (Config.Root) and outlives a reboot.
// The record of images is the metadata database there; the list in memory is
// a cache of it. Who uses an image is the caller's fact, not ours: it is told
// by Use, Release and, once after start, SyncUses. Nothing is collected before
// SyncUses, because until then nobody can say what is in use.
//
// What an image says about itself is not trusted: annotations of its manifests
// never become labels here, URLs in them are never followed, sizes are capped,
// and layers are unpacked by code that cannot leave the layer's directory.
//
// The package does not mount anything (internal/rootfs does) and knows nothing
// of pods or of the CRI's wire types.
package image
