// Package disk says how much images may take of a file system. It measures
// nothing that is in it.
package disk

import (
	"math"

	"golang.org/x/sys/unix"
)

// Spare is how many bytes the file system of a folder can still take: all but
// its last twentieth, which other work on this node needs. Where that cannot be
// told, there is no bound.
func Spare(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil || st.Blocks == 0 {
		return math.MaxInt64
	}
	reserve := st.Blocks / 20
	if st.Bavail <= reserve {
		return 0
	}
	return int64(st.Bavail-reserve) * st.Bsize // no disk has 2^63 bytes
}

// SpareFiles is how many more files the file system of a folder can have: all but
// its last twentieth. Where it counts none, or that cannot be told, there is no bound.
func SpareFiles(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil || st.Files == 0 {
		return math.MaxInt64
	}
	return int64(st.Ffree - min(st.Ffree, st.Files/20)) // no disk has 2^63 files
}
