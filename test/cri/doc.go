// Package cri tests Fairlead from outside: it builds the programs, starts
// `fairlead runtime` as root with directories of its own, and speaks CRI to it
// over the socket. Containers really run, under runc and under crun, and look
// at what they got from inside.
//
// node_test.go starts and ends a daemon, pods_test.go makes pods for tests, and
// audit_test.go says what is left on the host. Every other file tests one
// thing. Tests that fake a driver live beside the code they test, not here.
package cri
