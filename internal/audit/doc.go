// Package audit compares what is on the host with the records of pods, and
// puts right what does not agree: things that no record knows, and things
// that a record needs and that are gone or damaged.
//
// What there is, and how it is removed or put back, the drivers know: each has
// a pod.Keeper. This package only compares and decides, and the table of codes
// says what each finding means. It is for a node in doubt; no operation on
// pods needs it.
package audit
