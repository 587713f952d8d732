// Package cpuprofile says which functions and which areas of Fairlead's programs
// the samples of a profile of processor time are in. It is pure.
package cpuprofile
