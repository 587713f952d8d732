// Package networktest is the contract of pod network drivers as tests, with a
// Fake driver that keeps it and the stage on which the real ones are tried.
//
// The stage is a private network namespace: Main runs the whole test binary in
// one, so that bridges, rules and routes of a test are nobody else's and go
// away with the process. It is no product code.
package networktest
