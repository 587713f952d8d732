// Package stats measures what pods and containers use: from the files of their
// cgroups, the counters of their network interfaces and the folders that they
// write to.
//
// It measures what it is asked about, when it is asked, and starts no process
// for it. Only the walk through a writable layer takes too long for that, and
// lists of very many containers do: they are measured in the background, as far
// as somebody asks, and the last result is the answer. Nothing is kept that could not be measured again.
//
// It limits nothing, and does not know which pods there are.
package stats
