// Package rootfs mounts the root file systems of containers: overlay on the
// directories that an image was unpacked to, with a writable directory of the
// container's own on top. Volumes of images are the same without that. What has to be read or made inside of a mounted root
// goes through internal/inroot.
//
// It keeps no record. What is mounted is what the kernel says is mounted, and
// every call may be repeated. It does not know images: it is told directories.
package rootfs
