// Package linux holds the few kernel calls that the monitor is built on, each
// as one function with Go types: who a process is, how it ended, what a FIFO
// holds, what a terminal's size is.
//
// It keeps no state and decides nothing.
package linux
