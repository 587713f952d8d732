// Package cri tests Fairlead from outside: it builds the programs, starts
// `fairlead runtime` as root with directories of its own, and speaks CRI to it
// over the socket. Containers really run, under runc and under crun, and look
// at what they got from inside.
//
// Package node of test/ starts the daemon, makes pods, and says what is left on
// the host; here every file tests one thing. Tests that fake a driver live
// beside the code they test, not here.
package cri
