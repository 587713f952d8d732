// Package checkpoint keeps the folders in which checkpoints are made, and writes
// them down in the form that tools for checkpoints read: who the container is,
// beside what its handler has captured, as an archive.
//
// It captures and freezes nothing. A folder stands for a container that may be
// frozen: it is made before and removed after.
package checkpoint
