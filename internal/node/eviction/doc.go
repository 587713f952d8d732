// Package eviction keeps a node from running out of memory, disk and processes: it
// ends pods before the kernel or a full disk ends anything.
//
// It has the thresholds (Parse), a machine without clock or I/O that says which of
// them are passed and since when (Machine), the order in which pods go (Rank), what
// single pods use beyond their own limits (Exceeded), and a Manager around them,
// which observes, gives back what nobody uses, and then evicts one pod at a time.
// Names and texts are the kubelet's.
//
// It does not end pods itself, count what they use or write a node's status: all of
// that comes as functions.
package eviction
