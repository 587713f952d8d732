// Package cpuprofile reads the profiles of processor time that Go programs
// write, and says which functions and which areas of Fairlead's daemon the
// samples are in. It is pure.
package cpuprofile
