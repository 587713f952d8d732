// Package orphan finds out how processes ended that somebody else has reaped,
// from the kernel. One of 6.15 or later tells it to who has the process open.
// An older one reports the end of every process to who listens to its process
// events (CONFIG_PROC_EVENTS), which is done only while there are such
// processes, because it costs something for each process of the machine.
//
// It does not find out that a process has ended.
package orphan
