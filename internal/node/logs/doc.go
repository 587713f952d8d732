// Package logs reads the log files that a CRI runtime writes: it finds the
// last lines, follows a growing file across rotations, reads what was rotated
// away and compressed, and puts lines together that the runtime wrote in parts.
//
// It only reads. Who writes the file, and when it ends, is told by the caller;
// rotate rotates it.
package logs
