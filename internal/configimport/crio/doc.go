// Package crio reads what CRI-O is configured by: crio.conf and the files of
// crio.conf.d, merged as CRI-O merges them, and the mirrors of registries.conf,
// and what becomes of them here.
//
// It only reads files. It asks no CRI-O, and does not look whether programs
// exist.
package crio
