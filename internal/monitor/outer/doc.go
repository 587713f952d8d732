// Package outer is the monitor's outer process: it keeps an inner one running
// and outlives it.
//
// It is a subreaper, so what the inner process leaves behind when it dies
// falls to it; it records how each of them ends before it reaps it, and knows
// nothing else about them. It holds the descriptors that cannot be opened
// again by name, and gives them to each new inner process. It never talks to
// callers of the monitor.
package outer
