// Package stream copies the output of one container, from its FIFOs or its
// terminal, to its log and to whoever is attached.
//
// A FIFO keeps what was not copied: an unterminated line waits in it, and so
// does everything while the log cannot be written. Package journal makes each
// step happen exactly once. Attached callers get bytes as they appear, through
// a bounded queue each, and are cut off when it is full; nothing that they do
// reaches the container.
//
// The package neither starts nor watches processes.
package stream
