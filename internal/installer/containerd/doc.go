// Package containerd says which files of containerd's configuration have to change,
// and how, so that it serves a handler or no longer does.
//
// From containerd 2.0 on that is a file of our own, which the main one imports.
// Before, an imported file takes the place of the whole table of the CRI plugin,
// so that handlers are written into the file whose table counts. It reads files
// and computes; it writes nothing and restarts nothing.
package containerd
