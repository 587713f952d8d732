// Package rootfs mounts the root file systems of containers: overlay on the
// directories that an image was unpacked to, with a writable directory of the
// container's own on top. It also reads and makes files inside of a root file
// system without ever leaving it, whatever links are in there.
//
// It keeps no record. What is mounted is what the kernel says is mounted, and
// every call may be repeated. It does not know images: it is told directories.
package rootfs
