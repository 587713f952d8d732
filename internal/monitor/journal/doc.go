// Package journal makes one step of copying output to a log happen exactly
// once, even if the process is killed within it.
//
// A FIFO's content survives its reader, so a step must leave the FIFO and the
// log in agreement. It peeks at the FIFO (tee), formats, and then:
//
//  1. Arm: what will be written, where, and the bytes it stands for, go into a
//     slot, a piece of shared memory in a file that outlives the process;
//  2. the log is written;
//  3. the bytes are consumed, by one read into the slot's scratch area, which
//     Arm had filled with their complement;
//  4. Clear.
//
// Whoever finds an armed slot knows how far it came: the length of the log
// says whether step 2 happened, and the scratch area, byte by byte, step 3. A
// read of a pipe is not interrupted by a kill, but the rule would hold even if
// it were.
//
// A terminal cannot be peeked at. Its bytes are read into the slot directly,
// after Expect has zeroed it: bytes found there had been consumed and have to
// be written. Only NULs at the end of one such read could get lost.
//
// Slots are few and shared by all containers, because they are held for
// microseconds. The package knows neither FIFOs nor logs.
package journal
