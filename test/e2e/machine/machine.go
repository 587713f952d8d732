// Package machine starts and ends the programs of a node, and reads and writes its
// files: on this machine, or on one that takes orders over a network. It does not
// know what the programs are.
package machine

import "syscall"

// Program is one to start.
type Program struct {
	// Name tells it from the others of its machine. Only one of a name runs at a time.
	Name string
	Argv []string
	Env  []string
	// Output is the file that gets what it says, after what is there.
	Output string
}

// Machine is where programs run.
type Machine interface {
	// Start starts a program and waits for nothing.
	Start(Program) error
	// End sends a signal to a program, and waits until it has ended. One that has
	// ended by itself is no error.
	End(name string, signal syscall.Signal) error
	// Ended says whether a program that was started has ended.
	Ended(name string) (bool, error)
	// Read is what is in the only file that a pattern of filepath.Glob fits.
	Read(pattern string) (string, error)
	// Write writes a file, and makes the folders above it. A script can be run.
	Write(path, data string) error
	// Remove removes a file.
	Remove(path string) error
	// Accepts is nil if somebody listens on an address, as net.Dial has it.
	Accepts(network, address string) error
}
