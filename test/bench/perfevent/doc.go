// Package perfevent finds out what processes compute: the kernel interrupts each
// processor at work some thousand times a second and notes the calls that it is
// in. Nothing of it is done by the program that is looked at, which need not be
// able to, and unlike a Go program's own profile it does not wait for the tick of
// the kernel's clock.
package perfevent
